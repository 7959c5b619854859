/* kvtide.h: kvtide for C, and for every language that reads C headers.
 *
 *   kvtide_model* model = NULL;
 *   if (kvtide_model_load("model.gguf", &model) != KVTIDE_OK) { puts(kvtide_model_error(model)); ... }
 *
 * Handles: kvtide_model, kvtide_session, kvtide_state. Each is made by one function, given back by its _free
 * (NULL is fine), and remembers the message of its last failed call: kvtide_*_error(handle), valid until the
 * next call on that handle. A function that makes a handle sets it also when it fails, to one that knows
 * nothing but the message, so that there is something to ask; it is freed like any other. Only when there is
 * no memory for that is it NULL.
 * Results: 0 or more for success, a negative kvtide_error otherwise. After an error nothing has changed, but
 * for a reading that was interrupted: the session then holds the chunks that were complete.
 * Ownership: a session keeps its model, and a forked state its rows, for as long as they need them; handles
 * may be freed in any order. Thread rules: one call at a time per handle; sessions of one model may run side
 * by side. Callbacks run in the calling thread and must not use the handle that calls them. Units: bytes,
 * tokens, milliseconds. Versions: docs/versions.md. No exception and no C++ type crosses this header.
 */
#ifndef KVTIDE_KVTIDE_H
#define KVTIDE_KVTIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rises with every change that a program could notice (docs/versions.md). */
#define KVTIDE_API_MAJOR 0
#define KVTIDE_API_MINOR 2
/* Of the library that is linked: 1000 * major + minor. */
int32_t kvtide_api_version(void);

typedef enum kvtide_error {
  KVTIDE_OK = 0,
  KVTIDE_INVALID_ARGUMENT = -1,
  KVTIDE_NOT_FOUND = -2,
  KVTIDE_IO = -3,
  KVTIDE_BAD_FORMAT = -4,
  KVTIDE_UNSUPPORTED = -5,
  KVTIDE_BAD_TEXT = -6,
  KVTIDE_CONTEXT_FULL = -7,
  KVTIDE_OUT_OF_MEMORY = -8,
  KVTIDE_NUMERIC = -9,
  KVTIDE_CANCELLED = -10,
  KVTIDE_INTERNAL = -11 /* a mistake of the library's */
} kvtide_error;
/* "bad_format" and so on; "ok" for 0 and more. Never NULL. */
const char* kvtide_error_name(int64_t result);

typedef struct kvtide_model kvtide_model;
typedef struct kvtide_session kvtide_session;
typedef struct kvtide_state kvtide_state;

typedef enum kvtide_kv_type {
  KVTIDE_F16 = 0,
  KVTIDE_F32 = 1,
  KVTIDE_Q8_0 = 2,
  KVTIDE_Q4_0 = 3
} kvtide_kv_type;
typedef enum kvtide_part { KVTIDE_KEYS = 0, KVTIDE_VALUES = 1 } kvtide_part;

/* ---- Model -------------------------------------------------------------------------------------------- */

int32_t kvtide_model_load(const char* path, kvtide_model** model);
void kvtide_model_free(kvtide_model* model);
const char* kvtide_model_error(const kvtide_model* model); /* never NULL */
int64_t kvtide_model_vocabulary(kvtide_model* model);
int64_t kvtide_model_context_length(kvtide_model* model); /* tokens it was trained to see */

/* Both give the number of tokens or bytes that the whole result has, and write at most `capacity` of them
 * (NULL and 0 to ask for the number). A text is UTF-8 of `size` bytes; a decoded one is not terminated by a
 * 0. continues: the text goes on behind other text. */
int64_t kvtide_encode(kvtide_model* model, const char* text, size_t size, bool continues, int32_t* tokens,
                      size_t capacity);
int64_t kvtide_decode(kvtide_model* model, const int32_t* tokens, size_t count, char* text, size_t capacity);
/* 1 for a token that ends a text, 0 for any other. */
int32_t kvtide_ends_text(kvtide_model* model, int32_t token);

/* ---- Session ------------------------------------------------------------------------------------------ */

typedef struct kvtide_session_options {
  size_t size;            /* sizeof(kvtide_session_options): how a newer library knows an older program */
  int64_t context;        /* tokens that fit; 0: what the model was trained for */
  int64_t attention_size; /* newest positions a query sees; 0: all */
  int64_t sinks, window;  /* forget all but the first and the newest; window 0: keep everything */
  int64_t slack;          /* newest tokens that can be taken back also where a window has moved on */
  int32_t key_type, value_type; /* kvtide_kv_type */
  int32_t threads;              /* 0: as many as the machine has */
  bool exact;                   /* f32 activations */
  int64_t checkpoint_every;  /* tokens between positions that kvtide_session_truncate goes back to; 0: none */
  int64_t checkpoint_budget; /* bytes that these take at most; 0: as kvtide_session_defaults() says */
} kvtide_session_options;
/* Everything at its default: {.size = sizeof(...)} in one call. */
kvtide_session_options kvtide_session_defaults(void);

/* options: NULL for the defaults. */
int32_t kvtide_session_new(kvtide_model* model, const kvtide_session_options* options,
                           kvtide_session** session);
void kvtide_session_free(kvtide_session* session);
const char* kvtide_session_error(const kvtide_session* session); /* never NULL */

/* Appends tokens. progress may be NULL; it gets the tokens read so far, and false stops the reading with
 * KVTIDE_CANCELLED. */
int32_t kvtide_session_read(kvtide_session* session, const int32_t* tokens, size_t count,
                            bool (*progress)(void* context, int64_t done, int64_t of), void* context);
/* The logits after the last token: their number, and *logits is set to them (NULL when there are none). Valid
 * until the next call on the session. */
int64_t kvtide_session_logits(kvtide_session* session, const float** logits);
/* The most likely next token. */
int32_t kvtide_session_greedy(kvtide_session* session, int32_t* token);
int32_t kvtide_session_clear(kvtide_session* session);
/* Takes back the newest tokens, so that `length` remain, in memories of every kind. Where a window has moved on, or
 * what layers carry from token to token was not kept, the tokens behind the nearest checkpoint are read again:
 * *read_again (may be NULL) is their number. There are no logits then: read a token to have some. */
int32_t kvtide_session_truncate(kvtide_session* session, int64_t length, int64_t* read_again);
/* A checkpoint behind the newest token: 1 when positions up to here can be gone back to from now on, 0 when the
 * budget of checkpoints has no room or such a memory cannot have one. */
int32_t kvtide_session_checkpoint(kvtide_session* session);
/* The number of checkpoints; writes at most `capacity` of their positions, ascending. */
int64_t kvtide_session_checkpoints(kvtide_session* session, int64_t* positions, size_t capacity);
int32_t kvtide_session_fork(kvtide_session* session, kvtide_session** forked);
int32_t kvtide_session_save(kvtide_session* session, const char* path);
int32_t kvtide_session_load(kvtide_session* session, const char* path);
/* The memory as a state of its own, which shares its rows with the session until one of the two writes. */
int32_t kvtide_session_state(kvtide_session* session, kvtide_state** state);
/* Goes on from a state. */
int32_t kvtide_session_restore(kvtide_session* session, kvtide_state* state);

/* ---- What can be done to a memory ---------------------------------------------------------------------- */

typedef enum kvtide_change {
  KVTIDE_EXPAND = 0,    /* first: the new number of rows it may hold */
  KVTIDE_COMPACT = 1,   /* first: the same; refused when more are in use */
  KVTIDE_TRUNCATE = 2,  /* first: positions that remain */
  KVTIDE_DROP = 3,      /* positions [first, last) go and leave a gap */
  KVTIDE_CLOSE_GAP = 4, /* positions [first, last) go, and older rows move nearer */
  KVTIDE_ATTENTION = 5, /* first: newest positions a query sees; 0: all */
  /* first: as for truncate; where that is refused, the nearest checkpoint before it remains, or nothing: the position
   * says which */
  KVTIDE_TRUNCATE_NEAREST = 6
} kvtide_change;

typedef struct kvtide_transition {
  int32_t change; /* kvtide_change */
  int64_t first, last;
} kvtide_transition;

typedef struct kvtide_record {
  int64_t position;
  int64_t rows_kept, rows_dropped;
  int64_t capacity_before, capacity_after;
  int64_t bytes_before, bytes_after;
  double milliseconds;
} kvtide_record;

typedef struct kvtide_numbers {
  int64_t position; /* of the next token */
  int64_t rows;     /* positions held */
  int64_t capacity; /* rows it may hold */
  int64_t held_bytes, shared_bytes, capacity_bytes;
  int64_t attention_size; /* 0: all */
} kvtide_numbers;

int32_t kvtide_session_numbers(kvtide_session* session, kvtide_numbers* numbers);
int32_t kvtide_state_numbers(kvtide_state* state, kvtide_numbers* numbers);
/* plan: what would happen; apply: does it. The refusal is the handle's error. record may be NULL. */
int32_t kvtide_session_plan(kvtide_session* session, kvtide_transition transition, kvtide_record* record);
int32_t kvtide_session_apply(kvtide_session* session, kvtide_transition transition, kvtide_record* record);
int32_t kvtide_state_plan(kvtide_state* state, kvtide_transition transition, kvtide_record* record);
int32_t kvtide_state_apply(kvtide_state* state, kvtide_transition transition, kvtide_record* record);

/* ---- State ------------------------------------------------------------------------------------------- */

typedef struct kvtide_layer {
  int32_t kv_heads, head_dim;
  int64_t window; /* positions a query sees; 0: all */
} kvtide_layer;

typedef struct kvtide_shape {
  size_t size; /* sizeof(kvtide_shape) */
  const kvtide_layer* layers;
  size_t layer_count;
  int32_t key_type, value_type; /* kvtide_kv_type */
  int64_t capacity;
} kvtide_shape;

/* A state that holds `position` rows of zeros in every layer, to be written; tokens: their ids, or NULL. */
int32_t kvtide_state_new(const kvtide_shape* shape, int64_t position, const int32_t* tokens,
                         kvtide_state** state);
int32_t kvtide_state_load(const char* path, kvtide_state** state);
int32_t kvtide_state_save(kvtide_state* state, const char* path);
int32_t kvtide_state_fork(kvtide_state* state, kvtide_state** forked);
void kvtide_state_free(kvtide_state* state);
const char* kvtide_state_error(const kvtide_state* state); /* never NULL */
int64_t kvtide_state_layers(kvtide_state* state);
int32_t kvtide_state_layer(kvtide_state* state, int64_t index, kvtide_layer* layer);
/* The number of tokens, of which at most `capacity` are written. */
int64_t kvtide_state_tokens(kvtide_state* state, int32_t* tokens, size_t capacity);

/* The rows of positions [first, last) of one layer as floats, [kv_heads][positions][head_dim]; count is their
 * number, as a check. read: what the layer does not hold is zeros. write: only rows that the layer holds and
 * no fork sees; NaN and infinity are refused. */
int32_t kvtide_state_read(kvtide_state* state, int64_t layer, int32_t part, int64_t first, int64_t last,
                          float* rows, size_t count);
int32_t kvtide_state_write(kvtide_state* state, int64_t layer, int32_t part, int64_t first, int64_t last,
                           const float* rows, size_t count);

/* ---- Dense arrays that belong to the caller -------------------------------------------------------------
 */

/* An array [rows][kv_heads][seq][head_dim] in C order, of elements of 1 to 64 bytes. */
typedef struct kvtide_array {
  void* data;
  int64_t shape[4];
} kvtide_array;

/* Fills `target` from `source`: positions [0, position) bit for bit, `pad` (one element; NULL: zeros) behind
 * them. expand takes targets that are not shorter, compact any that hold the positions in use. Position -1:
 * every position of the source. record and message may be NULL; message receives at most message_size bytes
 * of why not, with a 0 at the end. */
int32_t kvtide_array_expand(const kvtide_array* source, const kvtide_array* target, size_t element_size,
                            int64_t position, const void* pad, kvtide_record* record, char* message,
                            size_t message_size);
int32_t kvtide_array_compact(const kvtide_array* source, const kvtide_array* target, size_t element_size,
                             int64_t position, kvtide_record* record, char* message, size_t message_size);

#ifdef __cplusplus
}
#endif

#endif
