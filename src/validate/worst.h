// worst.h: the figures of all schedules in one table: how bad a layer and token are at their worst.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvtide/validate.h"

namespace kvtide {

struct WorstCell {
  int layer = 0;
  Pos token = 0;
  std::size_t schedule = 0;
  double cosine = 1.0;   // of the change
  double max_abs = 0.0;  // likewise
};

struct WorstTable {
  bool isolated = false;  // from layers that were fed by the reference, else from the chain
  std::int64_t layers = 0, tokens = 0;
  std::vector<WorstCell> cells;  // [layers][tokens]; empty: no layers were compared

  const WorstCell& at(std::int64_t layer, Pos token) const {
    return cells[static_cast<std::size_t>(layer * tokens + token)];
  }
  std::vector<WorstCell> worst(std::size_t count) const;  // ascending by cosine
  std::vector<int> layers_worst_first() const;
};

WorstTable worst_of(const ValidationReport& report);

}  // namespace kvtide
