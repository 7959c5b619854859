// session_impl.h: what a Session holds. session.cpp reads with it, session_memory.cpp takes memories in and gives
// them away.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/session_spec.h"
#include "kernels/kernels.h"
#include "kvtide/session.h"
#include "model/decoder.h"
#include "model/loaded_model.h"
#include "model/pass_timer.h"
#include "state/shadow.h"
#include "state/state_object.h"

namespace kvtide {

struct Session::Impl {
  const Model* model;
  SessionOptions options;
  const Kernels& kernels;
  ThreadPool pool;
  State memory;
  KvState& state;
  std::vector<float>& logits;         // [vocabulary] of the last token
  std::vector<TokenId>& read_tokens;  // what the memory's positions hold
  Workspace workspace;
  std::vector<float> rows;  // a few rows of logits, only when several are asked for
  bool failed = false;
  // What was asked for when the session was made, filled in. Its budget holds for every memory that the session
  // goes on from.
  std::optional<ProceduralOptions> asked;
  std::unique_ptr<Shadow> shadow;  // nullptr: none
  PassTimes times;

  Impl(const Model& m, const SessionOptions& o);

  // Everything is checked before anything is changed; `name` is what the messages call the state.
  void go_on_from(KvState&& theirs, SnapshotExtras extras, const std::string& name);

  // Throws when the session cannot go on from such a memory.
  void check_fits(const KvState& theirs, const SnapshotExtras& extras, const std::string& name) const;

  void seal_if_due() { seal_if_due(pool); }
  void seal_if_due(ThreadPool& threads);
  // Reads the tokens of a block again. False: it has no meaning here, and nothing is known of the block.
  bool repeat(Repetition& repetition, ThreadPool& threads);
  // Throws when the session cannot take these tokens; nothing has changed then.
  void check(std::span<const TokenId> tokens) const;
  // Room to note `tokens` more and, when asked for, logits: once the memory has the tokens, nothing may fail.
  void reserve(std::size_t tokens, bool with_logits);
  // Reads one chunk; logits rows of the chunk's tokens from `from` on go to on_logits, the last row to
  // `logits`.
  void read_chunk(std::span<const TokenId> tokens, Pos from, bool keep_last, const ReadOptions& read);
  std::size_t guessable(std::size_t tokens) const;
  // Reads the first of the tokens and as many behind it as `goes_on` says, in one pass; gives their number.
  std::int64_t read_guesses(std::span<const TokenId> tokens, const GoesOn& goes_on);
  DecoderContext context() { return context(pool); }
  DecoderContext context(ThreadPool& threads);
};

}  // namespace kvtide
