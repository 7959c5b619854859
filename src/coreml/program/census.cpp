#include "coreml/program/census.h"

#include <set>
#include <utility>

#include "coreml/program/data_type.h"

namespace kvtide::coreml {
namespace {

void walk(const Value& value, FunctionRef<void(const Value&)> each) {
  each(value);
  for (const Value& part : value.parts) walk(part, each);
  for (const auto& [key, held] : value.dictionary) {
    walk(key, each);
    walk(held, each);
  }
}

using Counted = std::set<std::pair<const std::byte*, std::size_t>>;

void count(const Package& package, std::map<DataType, WeightCount>& counts, Counted& seen) {
  for (const Function& function : package.program.functions)
    for_each_operation(function.block, [&](const Operation& operation) {
      for_each_value(operation, [&](const Value& value) {
        if (!value.from_blob || !seen.emplace(value.bytes.data(), value.bytes.size()).second) return;
        WeightCount& kind = counts[value.type.dtype];
        ++kind.count;
        kind.elements += static_cast<std::int64_t>(elements_of(value.type.shape).value_or(0));
        kind.bytes += static_cast<std::int64_t>(value.bytes.size());
      });
    });
  for (const Package& stage : package.stages) count(stage, counts, seen);
}

}  // namespace

void for_each_operation(const Block& block, FunctionRef<void(const Operation&)> each) {
  for (const Operation& operation : block.operations) {
    each(operation);
    for (const Block& inner : operation.blocks) for_each_operation(inner, each);
  }
}

void for_each_value(const Operation& operation, FunctionRef<void(const Value&)> each) {
  for (const Attribute& attribute : operation.attributes) walk(attribute.value, each);
  for (const Argument& argument : operation.inputs)
    for (const Binding& binding : argument.bindings)
      if (binding.value) walk(*binding.value, each);
}

std::map<std::string, std::int64_t> operations_by_type(const Function& function) {
  std::map<std::string, std::int64_t> counts;
  for_each_operation(function.block, [&](const Operation& operation) { ++counts[operation.type]; });
  return counts;
}

std::map<DataType, WeightCount> weights_by_type(const Package& package) {
  std::map<DataType, WeightCount> counts;
  Counted seen;
  count(package, counts, seen);
  return counts;
}

std::int64_t bytes_of(const Feature& feature) {
  return static_cast<std::int64_t>(bytes_for(feature.dtype, elements_of(feature.shape).value_or(0)));
}

}  // namespace kvtide::coreml
