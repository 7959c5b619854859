// stateful.h: a model driven the way exported stateful models are: token ids and an attention mask go in, the
// logits of the last position come out, and what was read stays in a state of named arrays.
//
//   StatefulModel zenz(model);                    // keyCache, valueCache [12, 1, 12, 1024, 64], pastLen
//   zenz.predict(prompt, ones(prompt.size()));    // the whole prompt, once
//   zenz.predict({&next, 1}, ones(zenz.past_length() + 1));   // then one token a call, with the same state
//
// The mask covers all that is active, what the state holds and what the call adds. One of another length is
// refused: a mask of the call's own tokens hides the state from them, and every token but the first comes out
// wrong.
// Ownership: owns its memory; refers to the Model, which must outlive it: one object per sequence.
// Thread rules: one caller at a time.
// Invariant: a call that throws has changed nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvtide/named_state.h"
#include "kvtide/session.h"

namespace kvtide {

class StatefulModel {
 public:
  // Throws Error: invalid_argument, also for options that forget tokens (a rolling or procedural memory), and
  // for a model whose layers differ, so that one array cannot hold them all.
  explicit StatefulModel(const Model& model, const SessionOptions& options = {});
  ~StatefulModel();
  StatefulModel(StatefulModel&&) noexcept;
  StatefulModel& operator=(StatefulModel&&) noexcept;

  // Logits of the last position, [vocabulary], valid until the next call. attention_mask: one 1 for every
  // active token, past_length() + input_ids.size() of them. Throws Error: invalid_argument (a mask of another
  // length or with a 0; no ids), context_full (positions that the model or the state does not have).
  std::span<const float> predict(std::span<const TokenId> input_ids,
                                 std::span<const std::int32_t> attention_mask);

  std::int64_t past_length() const;  // positions read
  // A copy of the state: keyCache and valueCache [layers, 1, kv_heads, context, head_dim], pastLen [1] as
  // i32, which is exact at any length. Its spec names the model, whose files are hashed once for that.
  NamedState state() const;
  // Goes on from such a state; `tokens`: what was read into it. Throws Error(invalid_argument), also for the
  // state of another model. One that names no model is taken for this one's.
  void set_state(const NamedState& state, std::span<const TokenId> tokens);
  void reset();  // a new sequence

  const Session& session() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvtide
