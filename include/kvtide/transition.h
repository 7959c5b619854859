// transition.h: what can be done to a KV memory, as plain values.
//
//   auto plan = state.plan(Compact{.capacity = 256});
//   if (!plan) return report(plan.refusal());   // "cannot compact to 256 rows: 300 are in use"
//   TransitionRecord record = state.apply(plan);
//
// plan() is const: it says what would happen, or why it cannot. apply() cannot fail for a reason that plan()
// could have seen, and refuses a plan made for another generation of the state. Every layer takes part or
// none does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "kvtide/types.h"

namespace kvtide {

// Raises the number of rows the state may hold. Nothing is copied.
struct Expand {
  std::int64_t capacity;
};
// Lowers it, and gives memory beyond the held rows back. Refused when more rows are in use.
struct Compact {
  std::int64_t capacity;
};
// Takes back the newest positions, so that `length` remain. Succeeds exactly when the result equals a state
// that only ever saw `length` tokens. nearest: where that cannot be done, so that the nearest checkpoint before
// it remains, or nothing; the record says how many tokens are to be read again.
struct Truncate {
  Pos length;
  bool nearest = false;
};
// Positions that a memory can go back to although a window has moved on since, or what its layers carry has been
// replaced: what is needed for that is kept. The newest stand close together, older ones ever further apart.
struct Checkpoints {
  std::int64_t every = 0;  // positions from one to the next; 0: only those that are asked for
  std::int64_t budget = std::int64_t{64} << 20;  // bytes that all of them take at most
  friend bool operator==(const Checkpoints&, const Checkpoints&) = default;
};
// Removes the positions [range.first, range.last). close_gap: older rows move that much nearer to the reader,
// as if the removed text had never stood between; otherwise they keep their distance.
struct Drop {
  PosRange range;
  bool close_gap = false;
};
// An attention size that adapts itself: it begins at the smallest, doubles when attention is dispersed (much
// of it falls on the far half of what is seen) and halves when it is not, at multiples of 256 positions only.
struct AutoAttention {
  std::int64_t smallest = 256;
  std::int64_t largest = 0;  // 0, in SessionOptions: what the model was trained for
  friend bool operator==(const AutoAttention&, const AutoAttention&) = default;
};
struct AttentionChange {
  Pos position = 0;  // the first that sees `size`
  std::int64_t before = 0, size = 0;
  double far_share = 0.0;  // of the attention, on the far half of what was seen: what decided
};

// How many of the newest positions a query sees, its own included; nullopt: all that are held.
struct SetAttention {
  std::optional<std::int64_t> size = std::nullopt;
  std::optional<AutoAttention> automatic = std::nullopt;  // instead of a size
};

using Transition = std::variant<Expand, Compact, Truncate, Drop, SetAttention>;
const char* transition_name(const Transition& transition) noexcept;

struct TransitionRecord {
  std::string name;                              // "expand", "compact", ...
  Pos position = 0;                              // of the state when it happened
  std::int64_t rows_kept = 0, rows_dropped = 0;  // positions, of the layer that holds most
  std::int64_t capacity_before = 0, capacity_after = 0;
  std::int64_t bytes_before = 0, bytes_after = 0;  // held
  double milliseconds = 0.0;
  std::int64_t read_again = 0;  // of a truncate to the nearest: tokens that are missing up to its length
};

class TransitionPlan {
 public:
  explicit operator bool() const { return refusal_.empty(); }
  const std::string& refusal() const { return refusal_; }  // why not; "" when it can be applied
  const Transition& transition() const { return transition_; }
  // What would be kept and dropped; bytes_after and milliseconds are known only after apply.
  const TransitionRecord& expected() const { return expected_; }

 private:
  friend class KvState;
  explicit TransitionPlan(Transition transition) : transition_(transition) {}
  Transition transition_;
  std::uint64_t generation_ = 0;
  std::string refusal_;
  TransitionRecord expected_;
};

}  // namespace kvtide
