// census.h: what a program is made of: its operations by type, its weights by type; and a walk over all of either.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/function_ref.h"
#include "coreml/program/package.h"

namespace kvtide::coreml {

// Every operation of the block, in the order of the file: one with blocks comes before what they hold.
void for_each_operation(const Block& block, FunctionRef<void(const Operation&)> each);
// Every constant of an operation: of its attributes and its inputs, each before its parts.
void for_each_value(const Operation& operation, FunctionRef<void(const Value&)> each);

std::map<std::string, std::int64_t> operations_by_type(const Function& function);

struct WeightCount {
  std::int64_t count = 0, elements = 0, bytes = 0;
};
// Of weight files; a weight that several constants name counts once.
std::map<DataType, WeightCount> weights_by_type(const Package& package);

std::int64_t bytes_of(const Feature& feature);  // of the default shape; 0 where it is not known

}  // namespace kvtide::coreml
