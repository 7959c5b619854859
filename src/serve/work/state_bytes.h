// state_bytes.h: the memory of several KV states together, rows that they share counted once.
//
// Ownership: refers to the states while it adds. Thread rules: one thread, which also changes the states.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "kvtide/state.h"
#include "state/rows/extent.h"

namespace kvtide::serve {

class StateBytes {
 public:
  void add(const State& state);
  void add(std::int64_t bytes) { others_ += bytes; }
  // Bytes of the pages that all states added so far may hold, and of their tokens and logits.
  std::int64_t total() const;

 private:
  struct Held {
    std::vector<PosRange> rows;  // of any state, in any order
    bool in_one = false;         // what lies between them is held, too
    RowFormat format;
  };
  static std::int64_t bytes_of(Held held);
  std::map<const Extent*, Held> extents_;
  std::set<const std::byte*> values_;  // of recurrent tensors, which forks share
  std::int64_t others_ = 0;
};

// The most that a state of this shape may come to hold beyond its first `from` rows, which it shares with another, when
// it has `tokens`.
std::int64_t growth_bytes(const State& state, std::int64_t from, std::int64_t tokens);
// The most that measuring the drift of such a state keeps beside it: all rows of the layers that summarise.
std::int64_t shadow_bytes(const State& state, std::int64_t tokens);

}  // namespace kvtide::serve
