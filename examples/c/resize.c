/* resize.c: reads a text with a memory that is too small, resizes it in place, and goes on from a snapshot.
 *
 *   resize MODEL.gguf "some text" SNAPSHOT.kv
 */
#include <kvtide/kvtide.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char* what, const char* why) {
  fprintf(stderr, "resize: %s: %s\n", what, why);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 4) return fail("usage", "resize MODEL.gguf \"some text\" SNAPSHOT.kv");
  kvtide_model* model = NULL;
  if (kvtide_model_load(argv[1], &model) != KVTIDE_OK) return fail("model", kvtide_model_error(model));

  const int64_t count = kvtide_encode(model, argv[2], strlen(argv[2]), false, NULL, 0);
  if (count < 2) return fail("text", count < 0 ? kvtide_model_error(model) : "needs two tokens");
  int32_t* tokens = malloc((size_t)count * sizeof *tokens);
  if (tokens == NULL) return fail("text", "out of memory");
  kvtide_encode(model, argv[2], strlen(argv[2]), false, tokens, (size_t)count);

  kvtide_session_options options = kvtide_session_defaults();
  options.context = count - 1; /* one too few, on purpose */
  kvtide_session* session = NULL;
  if (kvtide_session_new(model, &options, &session) != KVTIDE_OK)
    return fail("session", kvtide_session_error(session));
  const int32_t refused = kvtide_session_read(session, tokens, (size_t)count, NULL, NULL);
  printf("%s: %s\n", kvtide_error_name(refused), kvtide_session_error(session));

  kvtide_record record;
  const kvtide_transition expand = {.change = KVTIDE_EXPAND, .first = 200};
  if (kvtide_session_apply(session, expand, &record) != KVTIDE_OK ||
      kvtide_session_read(session, tokens, (size_t)count, NULL, NULL) != KVTIDE_OK ||
      kvtide_session_save(session, argv[3]) != KVTIDE_OK)
    return fail("session", kvtide_session_error(session));
  printf("expanded from %lld to %lld rows in %.3f ms, then read %lld tokens\n",
         (long long)record.capacity_before, (long long)record.capacity_after, record.milliseconds,
         (long long)count);

  kvtide_state* state = NULL; /* stands alone: the session may go */
  int32_t next = -1, again = -1;
  kvtide_session_greedy(session, &next);
  kvtide_session_free(session);
  if (kvtide_state_load(argv[3], &state) != KVTIDE_OK) return fail("state", kvtide_state_error(state));
  kvtide_session* other = NULL;
  if (kvtide_session_new(model, NULL, &other) != KVTIDE_OK || kvtide_session_restore(other, state) != KVTIDE_OK ||
      kvtide_session_greedy(other, &again) != KVTIDE_OK)
    return fail("restore", kvtide_session_error(other));
  printf("goes on with token %d, and from the snapshot with %d\n", (int)next, (int)again);

  kvtide_state_free(state);
  kvtide_session_free(other);
  kvtide_model_free(model);
  free(tokens);
  return next == again && refused == KVTIDE_CONTEXT_FULL ? 0 : 1;
}
