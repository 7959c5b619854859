// ladder_steps.h: the steps that a budget is tried with, from the most faithful memory to the smallest.
//
// Pure functions. Choices by measurement: docs/procedural_measurements.md.
#pragma once

#include <cstdint>
#include <vector>

#include "kvtide/procedural.h"
#include "state/spec/spec.h"

namespace kvtide {

struct LadderStep {
  std::int64_t window, block, rows;
  int levels;
  enum class Texts { all, brief, lengthy } texts = Texts::all;  // what it is tried for
};

// Those for texts of the expected length.
std::vector<LadderStep> ladder_for(const ProceduralOptions& options);

// The step's window, block, rows, summaries and levels where the options leave them open.
ProceduralOptions filled(const ProceduralOptions& options, const LadderStep& step);

}  // namespace kvtide
