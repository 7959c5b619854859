#include "coreml/write/builder.h"

#include <algorithm>

#include "base/text.h"
#include "coreml/program/data_type.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

bool is_mil_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

Feature feature_of(std::string name, DataType dtype, Shape shape) {
  Feature feature;
  feature.name = std::move(name);
  feature.dtype = dtype;
  feature.shape = std::move(shape);
  return feature;
}

// The axes that may differ between calls are unknown to the program.
Shape program_shape(const Feature& feature) {
  Shape shape = feature.shape;
  for (std::size_t axis = 0; axis < feature.ranges.size() && axis < shape.size(); ++axis)
    if (feature.ranges[axis].least != feature.ranges[axis].most) shape[axis] = kUnknown;
  for (const Shape& other : feature.shapes)
    for (std::size_t axis = 0; axis < std::min(other.size(), shape.size()); ++axis)
      if (other[axis] != feature.shape[axis]) shape[axis] = kUnknown;
  return shape;
}

// A description has no tensor of rank 0, and no shape for what is only known when it runs.
Shape described_shape(const Shape& shape) {
  if (shape.empty()) return {1};
  return std::find(shape.begin(), shape.end(), kUnknown) == shape.end() ? shape : Shape{};
}

}  // namespace

std::string mil_name(std::string_view name) {
  std::string made;
  if (name.empty() || (name.front() >= '0' && name.front() <= '9')) made = "_";
  for (const char c : name) made += is_mil_letter(c) ? c : '_';
  return made;
}

Given Given::tuple(const std::vector<std::string>& names) {
  Given given;
  for (const std::string& name : names) given.bindings_.push_back({name, nullptr});
  return given;
}

FunctionBuilder::FunctionBuilder(std::string name, std::string opset) {
  function_.name = description_.name = std::move(name);
  function_.opset = std::move(opset);
}

void FunctionBuilder::know(const std::string& name, ValueType type) {
  if (!types_.emplace(name, std::move(type)).second)
    throw Error(ErrorCode::invalid_argument,
                cat("the function ", quoted(function_.name), " has ", quoted(name), " twice"));
}

const ValueType& FunctionBuilder::type_of(const std::string& name) const {
  const auto found = types_.find(name);
  if (found == types_.end())
    throw Error(ErrorCode::invalid_argument,
                cat("the function ", quoted(function_.name), " has nothing called ", quoted(name)));
  return found->second;
}

std::string FunctionBuilder::unique(std::string_view wanted) {
  const std::string name = mil_name(wanted);
  std::string made = name;
  while (types_.contains(made)) made = cat(name, "_", numbers_[name]++);
  return made;
}

std::string FunctionBuilder::input(Feature feature) {
  const std::string name = feature.name;
  know(name, tensor(feature.dtype, program_shape(feature)));
  function_.inputs.push_back({name, types_.at(name)});
  if (feature.shape.empty()) feature.shape = {1};
  description_.inputs.push_back(std::move(feature));
  return name;
}

std::string FunctionBuilder::input(std::string name, DataType dtype, Shape shape) {
  return input(feature_of(std::move(name), dtype, std::move(shape)));
}

std::string FunctionBuilder::state(std::string name, DataType dtype, Shape shape) {
  know(name, coreml::state(dtype, shape));
  function_.inputs.push_back({name, types_.at(name)});
  description_.states.push_back(feature_of(name, dtype, std::move(shape)));
  return name;
}

Operation& FunctionBuilder::add(std::string_view type, GivenList inputs, std::vector<ValueType> results,
                                std::string_view name) {
  const std::string base = name.empty() ? std::string(type) : std::string(name);
  const bool in_place = type.substr(0, 10) == "constexpr_";
  Operation made;
  made.type = type;
  for (NamedGiven& given : inputs) {
    Argument argument{given.parameter, {}};
    for (const Binding& binding : given.given.bindings()) {
      if (binding.value && in_place)
        argument.bindings.push_back(binding);
      else if (binding.value)
        argument.bindings.push_back({constant(cat(base, "_", given.parameter), *binding.value), nullptr});
      else
        argument.bindings.push_back({(type_of(binding.name), binding.name), nullptr});
    }
    made.inputs.push_back(std::move(argument));
  }
  for (ValueType& result : results) {
    const std::string named = unique(base);
    know(named, result);
    made.outputs.push_back({named, std::move(result)});
  }
  made.attributes.push_back(
      {"name", text(made.outputs.empty() ? cat(base, "_", function_.block.operations.size() + 1)
                                         : made.outputs.front().name)});
  made.line = function_.block.operations.size() + 1;
  return function_.block.operations.emplace_back(std::move(made));
}

std::string FunctionBuilder::constant(std::string name, Value value) {
  Operation& made = add("const", {}, {value.type}, name);
  made.attributes.push_back({"val", std::move(value)});
  return made.outputs.front().name;
}

std::string FunctionBuilder::op(std::string_view type, GivenList inputs, ValueType result,
                                std::string_view name) {
  return add(type, std::move(inputs), {std::move(result)}, name).outputs.front().name;
}

std::vector<std::string> FunctionBuilder::op_many(std::string_view type, GivenList inputs,
                                                  std::vector<ValueType> results, std::string_view name) {
  std::vector<std::string> names;
  for (const NamedType& output : add(type, std::move(inputs), std::move(results), name).outputs)
    names.push_back(output.name);
  return names;
}

void FunctionBuilder::op_none(std::string_view type, GivenList inputs) {
  add(type, std::move(inputs), {}, "");
}

std::string FunctionBuilder::read_state(const std::string& state) {
  ValueType type = type_of(state);
  type.kind = ValueType::Kind::tensor;
  return op("read_state", {{"input", state}}, std::move(type), state + "_read");
}

void FunctionBuilder::write_state(const std::string& state, const std::string& data) {
  op_none("write_state", {{"input", state}, {"data", data}});
}

void FunctionBuilder::output(const std::string& name, std::string_view as) {
  const ValueType type = type_of(name);
  std::string outside = name;
  if (!as.empty() && name != as) {
    if (types_.contains(std::string(as)))
      throw Error(ErrorCode::invalid_argument,
                  cat("the function ", quoted(function_.name), " has ", quoted(as), " twice"));
    outside = op("identity", {{"x", name}}, type, as);
  }
  function_.block.outputs.push_back(outside);
  description_.outputs.push_back(feature_of(outside, type.dtype, described_shape(type.shape)));
}

Block FunctionBuilder::take_block() { return std::move(function_.block); }

Package make_package(std::vector<FunctionBuilder> functions) {
  Package package;
  package.description.specification = 9;
  for (FunctionBuilder& builder : functions) {
    package.program.functions.push_back(std::move(builder.function()));
    package.description.functions.push_back(std::move(builder.description()));
  }
  if (!functions.empty()) package.description.default_function = package.description.functions.front().name;
  return package;
}

Package make_package(FunctionBuilder function) {
  std::vector<FunctionBuilder> one;
  one.push_back(std::move(function));
  return make_package(std::move(one));
}

}  // namespace kvtide::coreml
