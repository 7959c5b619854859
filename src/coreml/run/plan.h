// plan.h: a function of a program, ready to run: a flat list of steps with everything resolved that does not depend on inputs.
//
// Made once, when a package is opened: names become numbers, constant subgraphs are computed, constant operands of products are
// packed, values get the step behind which nobody needs them, and slices written to a state get the right to write it in place.
// Errors: unsupported lists every operation that kvtide does not have, with where it stands.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "coreml/program/program.h"
#include "coreml/run/call.h"
#include "coreml/run/operations.h"

namespace kvtide::coreml {

struct PlannedInput {
  std::string name;
  ValueType type;
  int slot = 0;
};

struct PlannedOutput {
  std::string name;
  ValueType type;
  int slot = 0;
};

struct Plan {
  std::string function;
  std::shared_ptr<const OperationTable> operations;  // what the steps' rows point into
  std::vector<Slot> slots;                           // constants filled in
  std::vector<Step> steps;
  std::vector<PlannedInput> inputs, states;  // a state's slot is not used
  std::vector<PlannedOutput> outputs;
};

// Packed operands, shared by the functions of a model: by where the constant lies and how it is packed.
using WeightCache =
    std::map<std::tuple<const void*, std::int64_t, std::int64_t, int>, std::shared_ptr<const Weight>>;

// Throws Error(unsupported) that lists the operations of all functions that cannot be run.
void check_operations(const Program& program);

Plan make_plan(Runtime& run, const Program& program, const Function& function, WeightCache& weights);

}  // namespace kvtide::coreml
