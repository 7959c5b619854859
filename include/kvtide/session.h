// session.h: one text being read and continued: tokens in, logits out, the KV memory in between.
//
// Ownership: owns its KV memory, scratch memory and threads; refers to the Model, which must outlive it.
// Thread rules: one caller at a time. Sessions of one model do not influence each other. After fork(2) parent
// and child go on each for itself, with threads of their own; in the child, leave alone what another thread
// was using at that moment.
// Invariants
//   1. The logits of a token are the same bits for every prefill_chunk, thread count and kernel table.
//   2. After an error the KV memory holds exactly the tokens of the chunks that were completed before it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvtide/error.h"
#include "kvtide/model.h"
#include "kvtide/procedural.h"
#include "kvtide/state.h"
#include "kvtide/transition.h"
#include "kvtide/types.h"

namespace kvtide {

struct SessionOptions {
  // Change results.
  bool exact = false;  // f32 instead of 8-bit activations in matrix products and bf16 products in attention
  ElementType key_type = ElementType::f16;
  ElementType value_type = ElementType::f16;
  std::int64_t context = 0;             // tokens the session can hold; 0: what the model was trained for
  std::optional<Rolling> rolling = {};  // forget all but sinks and a window; nullopt: keep everything
  std::optional<ProceduralOptions> procedural =
      {};  // keep the past as summaries and outliers; never fills up
  std::optional<std::int64_t> attention_size =
      {};  // newest positions a query sees; nullopt: all that are held
  std::optional<AutoAttention> auto_attention = {};  // instead of an attention size: one that adapts itself
  std::int64_t slack = 0;  // newest tokens that truncate can always take back, also where a window has moved
                           // on; at least 4 where layers carry more than rows (State::carried)
  Checkpoints checkpoints = {};  // where truncate can go back further
  // Change only speed or memory.
  std::optional<ShadowOptions> shadow = {};  // measures a procedural memory while it runs
  bool profile = false;                      // takes the times of passes
  int threads = 0;                           // 0: as many as the machine has
  std::int64_t prefill_chunk = 512;          // tokens per forward pass while reading
  std::string kernels = {};                  // "avx512", "neon" ... "scalar"; empty: the best there is
};

struct ReadOptions {
  // Positions of this text from which on logits are computed and handed out, one row per token, in order; the
  // last token's logits are always kept for logits(). Default: only the last.
  Pos logits_from = -1;
  std::function<void(Pos, std::span<const float>)> on_logits;
  // Called after each chunk with the tokens read so far in this call; false stops: read throws
  // Error(cancelled).
  std::function<bool(std::int64_t)> progress;
  bool need_logits = true;  // false: only fill the memory; logits() is empty afterwards
};

struct MemoryUse {  // bytes
  std::int64_t weights = 0;
  std::int64_t kv = 0;              // pages of the rows held
  std::int64_t kv_shared = 0;       // of these, shared with forks
  std::int64_t kv_checkpoints = 0;  // of these, kept for checkpoints only
  std::int64_t scratch = 0;         // activations, logits and vocabulary tables
};

class Session {
 public:
  // Throws Error: invalid_argument, unsupported (kernels), out_of_memory.
  Session(const Model& model, const SessionOptions& options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Appends tokens to the text. Throws Error: context_full (checked before anything is read: it tells both
  // numbers), invalid_argument (a token id), cancelled, numeric (the session is then unusable until clear()).
  void read(std::span<const TokenId> tokens, const ReadOptions& options = {});

  // Reads tokens[0] and, in the same pass, guesses of what follows it: tokens[i + 1] is read when `goes_on` says yes to
  // the logits [vocabulary] behind tokens[i]. Guesses from the first no on leave nothing behind, in memories of every
  // kind; logits() are those behind the last token read. Returns how many were read: the bits are those of reading them
  // alone. A pass takes 16 tokens at most, fewer where the memory seals or ends; more are not asked about. goes_on must
  // not use the session. Throws Error: as read; what goes_on throws leaves the session as it was.
  using GoesOn = std::function<bool(std::span<const float> logits)>;
  std::int64_t read_while(std::span<const TokenId> tokens, const GoesOn& goes_on);

  // Logits after the last token read: [vocabulary]; empty before the first.
  std::span<const float> logits() const;

  Pos position() const;          // tokens read
  std::int64_t context() const;  // tokens that fit
  std::int64_t rows() const;     // tokens held: fewer than position() once a window has moved on
  std::int64_t room() const;     // tokens that can still be read; a rolling session never fills up
  const Model& model() const;
  const SessionOptions& options() const;  // with the defaults filled in
  MemoryUse memory() const;

  void clear();  // forgets the text and gives its memory back

  // The tokens read, as they stand in the memory's positions (without those that were taken back).
  const std::vector<TokenId>& tokens() const;

  // What a change of the memory would do, or why it cannot be made; and making it. Throws
  // Error(invalid_argument) with the refusal. Taking back positions also takes back the logits: read a token
  // to have new ones.
  TransitionPlan plan(const Transition& transition) const;
  TransitionRecord apply(const Transition& transition);
  // Takes back the newest tokens, so that `length` remain, in memories of every kind: where a window has moved on or
  // what layers carry was not kept, goes back to the nearest checkpoint, or to the start, and reads the tokens from there
  // on again: read_again of the record says how many. The bits are those of a session that never went further. Throws
  // what read throws (options.progress stops it), with the tokens of completed chunks behind the checkpoint held, and
  // Error(invalid_argument) for a length beyond position().
  TransitionRecord truncate(Pos length, const ReadOptions& options = {});
  // Makes a checkpoint behind the newest token. False: options().checkpoints.budget has no room for one, or the memory
  // cannot have one (a procedural one; one from which positions were dropped).
  bool checkpoint();
  // Positions of checkpoints, ascending.
  const std::vector<Pos>& checkpoints() const;
  std::optional<std::int64_t> attention_size() const;
  // What a procedural memory holds and has done; nullopt for others.
  std::optional<ProceduralCounts> procedural_counts() const;
  // The steps of its newest seal; empty before the first.
  std::vector<ProceduralEvent> newest_seal() const;
  // Keeps positions exact in every head for good, read or still to come. Throws Error(invalid_argument), and
  // changes nothing, when they are summarised already, when the budget cannot hold them (it says both
  // numbers), or when the memory is not procedural.
  void pin(const PosRange& positions);
  // Of all passes since the session was made; zeros unless options().profile.
  PassTimes times() const;
  // What shadow mode has measured; nullopt without it.
  std::optional<Drift> drift() const;
  // The most that it will hold, by what for.
  std::optional<ProceduralBytes> procedural_plan() const;
  // What an attention size that adapts itself has done since it was set; empty for one that does not.
  std::vector<AttentionChange> attention_changes() const;

  // The memory itself: to look at, to fork and to plan with. It lives as long as the session does; change it
  // through the session.
  const State& state() const;
  // Goes on from a copy of `state`, which shares its rows, instead of this session's memory. Throws
  // Error(invalid_argument), and changes nothing, for one of another model (when it says which), of another
  // shape, or that does not say which tokens it holds. cache: as for load.
  void restore(const State& state, const std::string& cache = "");

  // A second session with the same memory, threads of its own and the same options. Rows are shared until one
  // writes.
  Session fork() const;

  // The memory as a file (docs/snapshot_format.md), saved atomically; loading replaces this session's memory
  // as a whole or, after an error, not at all. A file of another model, tokenizer or shape is refused. cache:
  // folder that remembers the model's hash between runs; empty: none.
  void save(const std::string& path, const std::string& cache = "") const;
  void load(const std::string& path, const std::string& cache = "");

 private:
  friend class Batch;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct BatchOptions {           // change only speed or memory
  int threads = 0;              // 0: as many as the machine has
  std::int64_t max_step = 512;  // tokens per step, of all sessions together
  std::string kernels = {};     // as in SessionOptions
};

// Several sessions of one model in one pass: the weights are read once for all of them. Sessions join and leave from
// step to step; memories of all kinds mix. Every session's logits and memory are the bits that it would have alone.
// Ownership: owns threads and scratch memory; refers to the model, which must outlive it.
// Thread rules: one caller at a time, who is also the caller of the sessions in the step.
class Batch {
 public:
  explicit Batch(const Model& model, const BatchOptions& options = {});
  ~Batch();
  Batch(Batch&&) noexcept;
  Batch& operator=(Batch&&) noexcept;

  struct Item {
    Session* session;
    std::span<const TokenId>
        tokens;               // at least one: the newest token of a session that writes, a chunk of one that
                              // reads
    bool need_logits = true;  // false: logits() is empty afterwards, which saves the output matrix
  };
  // What became of an item. `read` can be fewer tokens than it has: a session takes at most prefill_chunk in a step, and
  // a procedural one those up to its next seal. The logits come with the last token.
  struct Outcome {
    std::int64_t read = 0;
    std::optional<Error> error;  // the session is as it was then (code numeric: unusable until clear())
  };
  // Reads the tokens of every item, each as Session::read would, in one pass. What one session cannot do stops no other.
  // Throws Error(invalid_argument), and changes nothing, for items that do not belong into one step: a session twice, of
  // another model, with and without `exact`, no tokens, or more than max_step together; and out_of_memory.
  std::vector<Outcome> step(std::span<const Item> items);

  const BatchOptions& options() const;  // with the defaults filled in
  PassTimes times() const;              // of all steps

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A 64-bit hash of the bits of `values`, for comparing runs.
std::uint64_t hash_logits(std::span<const float> values, std::uint64_t seed = 0);

}  // namespace kvtide
