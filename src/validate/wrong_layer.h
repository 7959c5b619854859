// wrong_layer.h: the lowest layer that is wrong, and under which schedules.
//
// Ownership: plain values. Thread rules: pure functions.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "validate/inspection.h"

namespace kvtide {

struct WrongLayer {
  int layer = 0;
  bool isolated = false;                             // fed with what is right
  std::map<std::size_t, std::pair<Pos, double>> at;  // schedule: first token, worst cosine
  std::set<int> layers;                              // all that are wrong

  const std::vector<Run>& runs(const Inspection& in) const { return isolated ? in.isolated : in.chained; }
  std::vector<std::size_t> schedules() const;
  // The schedule that tells most: where it begins first, and of those the one with the longest calls.
  std::size_t telling(const Inspection& in) const;
};

// Of what layers give, or of rows of the state as well. nullopt: no layer is wrong, or layers are not judged.
std::optional<WrongLayer> lowest_wrong(const Inspection& in, bool with_rows);

}  // namespace kvtide
