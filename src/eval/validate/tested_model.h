// tested_model.h: a model under test: something that reads tokens into a state and says what comes out.
//
// The validator knows models by this interface only. What a model cannot do it leaves out and says so in its
// shape: one that gives logits only is a black box that is judged by its logits. Ownership: states belong to
// the model that made them and do not outlive it. Thread rules: one caller at a time. Invariants
//   1. A state is at the position of the next token; reading appends, whatever the chunk.
//   2. Rows are those of the state after the last read, keys as they were rotated when written, pairs of a
//      rotation lying half a rotated width apart.
// Units: f32; shapes are given slowest axis first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvtide/error.h"
#include "kvtide/state.h"
#include "kvtide/types.h"

namespace kvtide {

struct TestedShape {
  std::string name;
  std::vector<StateLayer> layers;  // empty: a black box
  std::int64_t width = 0;          // of the residual stream
  std::int64_t vocab = 0;
  std::int64_t largest_chunk = 0;  // tokens of one call; 0: any number
  // What the model can do beside reading.
  bool gives_hidden = false;    // Reading::hidden
  bool isolates = false;        // layers can be fed from outside
  bool gives_rows = false;      // rows()
  bool truncates = false;       // truncate()
  bool forks = false;           // fork()
  bool snapshots = false;       // through_snapshot()
  bool poisons = false;         // poison()
  bool keeps_capacity = false;  // make_state() obeys its capacity: more tokens must be refused
};

struct Reading {
  // [layers + 1][tokens][width]: as it enters layer 0, then behind every layer. Empty: not known.
  std::vector<float> hidden;
  std::vector<float> logits;  // [tokens][vocab], or [vocab]: the last token's
};

// What a state holds of one layer: rows of the positions first, first + 1, ...
struct HeldRows {
  std::int64_t kv_heads = 0, rows = 0, head_dim = 0;
  Pos first = 0;
  std::vector<float> keys, values;  // [kv_heads][rows][head_dim]

  std::span<const float> key(std::int64_t head, Pos position) const { return row(keys, head, position); }
  std::span<const float> value(std::int64_t head, Pos position) const { return row(values, head, position); }

 private:
  std::span<const float> row(const std::vector<float>& part, std::int64_t head, Pos position) const {
    return std::span(part).subspan(static_cast<std::size_t>((head * rows + position - first) * head_dim),
                                   static_cast<std::size_t>(head_dim));
  }
};

class TestedState {
 public:
  virtual ~TestedState() = default;
};

class TestedModel {
 public:
  virtual ~TestedModel() = default;
  virtual TestedShape shape() const = 0;
  // A new sequence with room for `capacity` tokens.
  virtual std::unique_ptr<TestedState> make_state(std::int64_t capacity) = 0;
  // inputs: empty, or [layers][tokens][width]: what every layer gets instead of what the one before it gave.
  virtual Reading read(TestedState& state, std::span<const TokenId> tokens,
                       std::span<const float> inputs) = 0;

  virtual HeldRows rows(TestedState&, int) { return cannot<HeldRows>("show its rows"); }
  virtual void truncate(TestedState&, Pos) { cannot<int>("take tokens back"); }
  virtual std::unique_ptr<TestedState> fork(TestedState&) {
    return cannot<std::unique_ptr<TestedState>>("be forked");
  }
  virtual std::unique_ptr<TestedState> through_snapshot(TestedState&) {
    return cannot<std::unique_ptr<TestedState>>("be saved");
  }
  // Puts `value` into every element of rows that are not part of the sequence.
  virtual void poison(TestedState&, float) { cannot<int>("be poisoned"); }

 private:
  template <class T>
  [[noreturn]] T cannot(const char* what) const {
    throw Error(ErrorCode::unsupported, std::string("the state of this model cannot ") + what);
  }
};

}  // namespace kvtide
