// state_transition.h: growing and shrinking dense KV arrays that belong to the caller.
//
// An array is [rows][kv_heads][seq][head_dim] in C order; the sequence axis is 2, and positions [0, position)
// of every row and head are in use. Nothing here knows what an element means: it is 1 to 64 opaque bytes.
// Ownership: the caller owns every byte before, during and after a call.
// Thread rules: functions of their arguments, from any thread; two calls must not write the same target.
// Invariants
//   1. A call that throws has written nothing.
//   2. Every element of a target is written: positions in use are equal to the source bit for bit, the rest
//      is padding. What the source holds behind the positions in use never reaches the target.
//   3. The first check that fails decides the message; the order is that of the list above each function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

struct DenseSource {
  std::span<const std::byte> bytes;
  std::vector<std::int64_t> shape;
};

struct DenseTarget {
  std::span<std::byte> bytes;
  std::vector<std::int64_t> shape;
};

struct TransitionOptions {
  // Change results.
  std::vector<std::byte> pad = std::vector<std::byte>(2);  // one element of padding; its size is that of all
  // Change only speed.
  int threads = 0;  // 0: what the size of the arrays is worth, at most as many as the machine has
  bool target_is_padded = false;  // the caller promises that the target holds nothing but padding
  bool target_is_fresh = false;   // pages that were never touched: they arrive in the caches with the first
                                  // write, and writing past the caches would only throw them out
};

struct DenseTransitionRecord {
  std::int64_t kept = 0;     // positions, of each row and head
  std::int64_t dropped = 0;  // positions of the source that the target does not hold
  std::int64_t bytes_before = 0;
  std::int64_t bytes_after = 0;
  double milliseconds = 0;
};

// Fills `target` from `source`, which is not longer. nullopt: every position of the source is in use. Source
// and target may be the same bytes when nothing is to change (equal lengths, all in use); they must not
// overlap otherwise.
//
// Throws Error(invalid_argument), in this order: source or target is not 4-D; target shorter than source;
// position beyond the source or negative; rows, heads or head_dim differ; a size that does not match the
// number of bytes; arrays that overlap.
DenseTransitionRecord transition(const DenseSource& source, const DenseTarget& target,
                                 std::optional<Pos> position = std::nullopt,
                                 const TransitionOptions& options = {});

// The same with a target of any length that holds the positions in use; the padding is zeros whatever
// options.pad holds (its size still counts).
//
// Throws Error(invalid_argument), in this order: source or target is not 4-D; position beyond the target, or
// beyond the source, or negative; then as above.
DenseTransitionRecord compact(const DenseSource& source, const DenseTarget& target, Pos position,
                              const TransitionOptions& options = {});

// What a transition would do, in numbers. Checks nothing.
struct TransitionInfo {
  std::int64_t source_seq_length = 0;
  std::int64_t target_seq_length = 0;
  std::int64_t current_position = 0;
  std::int64_t valid_tokens = 0;
  std::int64_t padded_positions_source = 0;
  std::int64_t padded_positions_target = 0;
  double expansion_factor = 0;
  std::int64_t additional_capacity = 0;
};
TransitionInfo transition_info(std::int64_t source_seq_length, std::int64_t target_seq_length, Pos position);

// Whether an array of one shape can grow into the other. Throws Error(invalid_argument), in this order:
// source, then target is not 4-D; layers, KV heads, head dimensions differ; target sequence shorter than
// source.
void validate_state_shapes(std::span<const std::int64_t> source, std::span<const std::int64_t> target);

}  // namespace kvtide
