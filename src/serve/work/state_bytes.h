// state_bytes.h: the memory of several KV states together, rows that they share counted once.
//
// Ownership: refers to the states while it adds. Thread rules: one thread, which also changes the states.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "kvtide/state.h"
#include "state/rows/extent.h"

namespace kvtide::serve {

class StateBytes {
 public:
  void add(const State& state);
  void add(std::int64_t bytes) { others_ += bytes; }
  // Bytes of the pages that all states added so far may hold, and of their tokens and logits. Sorts what was added.
  std::int64_t total();

 private:
  struct Rows {  // of one state
    const Extent* extent;
    PosRange held;
    bool in_one;  // what lies between the rows of this extent is held, too
    RowFormat format;
  };
  static std::int64_t bytes_of(std::span<const Rows> of_extent);
  std::vector<Rows> rows_;             // flat: a server adds up all its states for each request
  std::set<const std::byte*> values_;  // of recurrent tensors, which forks share
  std::int64_t others_ = 0;
};

// The most that a state of this shape may come to hold beyond its first `from` rows, which it shares with another, when
// it has `tokens`.
std::int64_t growth_bytes(const State& state, std::int64_t from, std::int64_t tokens);
// The most that measuring the drift of such a state keeps beside it: all rows of the layers that summarise.
std::int64_t shadow_bytes(const State& state, std::int64_t tokens);

}  // namespace kvtide::serve
