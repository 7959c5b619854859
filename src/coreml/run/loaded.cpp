#include "coreml/run/loaded.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/refuse.h"
#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/program/pipeline.h"
#include "coreml/run/convert.h"

namespace kvtide::coreml {
namespace {

bool in_range(const AxisRange& range, std::int64_t size) {
  return size >= range.least && (range.most == kUnknown || size <= range.most);
}

std::string allowed_text(const Feature& feature) {
  if (!feature.shapes.empty()) {
    std::string text;
    for (const Shape& shape : feature.shapes) text += cat(text.empty() ? "" : " or ", text_of(shape));
    return text;
  }
  if (feature.ranges.empty()) return text_of(feature.shape);
  std::string text = "[";
  for (const AxisRange& range : feature.ranges) {
    if (text.size() > 1) text += ", ";
    text += range.least == range.most ? cat(range.least)
                                      : cat(range.least, "..", range.most == kUnknown ? "" : cat(range.most));
  }
  return text + "]";
}

bool allows(const Feature& feature, const Shape& shape) {
  if (!feature.shapes.empty())
    return std::find(feature.shapes.begin(), feature.shapes.end(), shape) != feature.shapes.end();
  if (!feature.ranges.empty()) {
    bool fits = feature.ranges.size() == shape.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i) fits = in_range(feature.ranges[i], shape[i]);
    return fits;
  }
  bool fits = feature.shape.size() == shape.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i)
    fits = feature.shape[i] == kUnknown ? shape[i] >= 0 : feature.shape[i] == shape[i];
  return fits;
}

// A copy of the call's own, in the type that the program wants: nobody else writes it.
Tensor own_copy(Runtime& run, const Tensor& given, DataType wanted, Shape shape) {
  Tensor copy = run.tensors.take(wanted, std::move(shape));
  if (given.dtype == wanted) {
    if (copy.bytes() > 0) std::memcpy(copy.data.get(), given.data.get(), copy.bytes());
  } else if (is_float(wanted)) {
    const Floats values(run, given);
    store(run.kernels, values.data(), copy.elements(), copy, 0);
  } else {
    std::vector<std::int32_t> values(static_cast<std::size_t>(copy.elements()));
    load(run.kernels, given, 0, copy.elements(), values.data());
    store(run.kernels, values.data(), copy.elements(), copy, 0);
  }
  return copy;
}

const NamedTensor* tensor_named(const std::vector<NamedTensor>& tensors, std::string_view name) {
  for (const NamedTensor& each : tensors)
    if (each.name == name) return &each;
  return nullptr;
}

std::string names_in(const std::vector<Feature>& features) {
  std::string text;
  for (const Feature& each : features) text += cat(text.empty() ? "" : ", ", each.name);
  return text.empty() ? "none" : text;
}

Feature undescribed_feature(const std::string& name, const ValueType& type) {
  Feature feature;
  feature.name = name;
  feature.dtype = type.dtype;
  feature.shape = type.shape;
  return feature;
}

// The inputs of one call in the order of the plan.
std::vector<Tensor> checked_inputs(Runtime& run, const Plan& plan, const FunctionDescription& described,
                                   const std::vector<NamedTensor>& given) {
  for (const NamedTensor& each : given)
    if (feature_named(described.inputs, each.name) == nullptr)
      refuse(cat("function ", plan.function, " has no input ", quoted(each.name),
                 "; its inputs: ", names_in(described.inputs)));
  std::vector<Tensor> inputs;
  for (const PlannedInput& input : plan.inputs) {
    const NamedTensor* found = tensor_named(given, input.name);
    const Feature* feature = feature_named(described.inputs, input.name);
    if (found == nullptr)
      refuse(cat("input ", quoted(input.name), " of function ", plan.function, " is missing"));
    const Tensor& tensor = found->tensor;
    if (feature != nullptr && !allows(*feature, tensor.shape))
      refuse(cat("input ", quoted(input.name), " has shape ", text_of(tensor.shape), "; ",
                 allowed_text(*feature), " is right"));
    if (is_float(tensor.dtype) != is_float(input.type.dtype))
      refuse(cat("input ", quoted(input.name), " is of ", name_of(tensor.dtype), "; ",
                 name_of(input.type.dtype), " is right"));
    // A single number of the program is a vector of one outside.
    const bool number = input.type.shape.empty() && !input.type.any_rank && tensor.elements() == 1;
    inputs.push_back(own_copy(run, tensor, input.type.dtype, number ? Shape{} : tensor.shape));
  }
  return inputs;
}

std::vector<Tensor*> checked_states(const Plan& plan, StateTensors* states) {
  std::vector<Tensor*> result;
  if (!plan.states.empty() && states == nullptr)
    refuse(cat("function ", plan.function, " keeps state ", quoted(plan.states[0].name),
               ": a call needs a state (make_state)"));
  for (const PlannedInput& wanted : plan.states) {
    Tensor* found = nullptr;
    for (NamedTensor& each : *states)
      if (each.name == wanted.name) found = &each.tensor;
    if (found == nullptr)
      refuse(cat("the state has no ", quoted(wanted.name), ", which function ", plan.function,
                 " keeps: it is that of another model"));
    if (found->shape != wanted.type.shape || found->dtype != wanted.type.dtype)
      refuse(cat("state ", quoted(wanted.name), " is ", name_of(found->dtype), " ", text_of(found->shape),
                 "; function ", plan.function, " keeps ", name_of(wanted.type.dtype), " ",
                 text_of(wanted.type.shape)));
    result.push_back(found);
  }
  return result;
}

}  // namespace

FunctionDescription description_of(const Function& function) {
  FunctionDescription described;
  described.name = function.name;
  for (const NamedType& input : function.inputs)
    (input.type.kind == ValueType::Kind::state ? described.states : described.inputs)
        .push_back(undescribed_feature(input.name, input.type));
  for (const std::string& name : function.block.outputs)
    for (const Operation& operation : function.block.operations)
      for (const NamedType& output : operation.outputs)
        if (output.name == name) described.outputs.push_back(undescribed_feature(name, output.type));
  return described;
}

LoadedModel::LoadedModel(const Package& opened, int threads, const Kernels& kernels, const std::string& only)
    : source_(opened.path), runtime_(std::make_unique<Runtime>(threads, kernels)) {
  const Package joined = opened.stages.empty() ? Package{} : as_one_program(opened);
  const Package& package = opened.stages.empty() ? opened : joined;
  description_ = package.description;
  check_operations(package.program);
  for (const Function& function : package.program.functions) {
    if (description_.function(function.name) == nullptr)
      description_.functions.push_back(description_of(function));
    if (!only.empty() && function.name != only) continue;
    executors_.push_back(
        std::make_unique<Executor>(*runtime_, make_plan(*runtime_, package.program, function, weights_)));
  }
  if (executors_.empty())
    throw Error(ErrorCode::not_found,
                cat(package.path, ": ", only.empty() ? "no function" : cat("no function ", quoted(only))));
  if (description_.default_function.empty()) description_.default_function = executors_[0]->plan().function;
  if (!only.empty()) description_.default_function = only;
}

const FunctionDescription& LoadedModel::described(std::string_view function) const {
  const std::string_view wanted =
      function.empty() ? std::string_view(description_.default_function) : function;
  const FunctionDescription* found = description_.function(wanted);
  if (found == nullptr) refuse(cat(source_, " has no function ", quoted(wanted)));
  return *found;
}

Executor& LoadedModel::executor(std::string_view function) {
  const std::string& name = described(function).name;
  for (const auto& each : executors_)
    if (each->plan().function == name) return *each;
  refuse(cat("function ", quoted(name), " of ", source_, " was not loaded"));
}

std::int64_t LoadedModel::weight_bytes() const {
  std::int64_t bytes = 0;
  std::set<const Weight*> seen;
  for (const auto& each : executors_)
    for (const Step& step : each->plan().steps)
      if (step.weight && seen.insert(step.weight.get()).second) bytes += step.weight->bytes();
  return bytes;
}

StateTensors LoadedModel::make_states(std::string_view function) const {
  StateTensors states;
  for (const Feature& state : described(function).states)
    states.push_back({state.name, zeroed_tensor(state.dtype, state.shape)});
  return states;
}

std::vector<NamedTensor> LoadedModel::predict(std::string_view function,
                                              const std::vector<NamedTensor>& inputs, StateTensors* states,
                                              const std::function<bool()>& go_on, const Keep& keep) {
  Executor& runs = executor(function);
  const FunctionDescription& about = described(function);
  const std::vector<Tensor*> kept = checked_states(runs.plan(), states);
  const std::vector<Tensor> taken = checked_inputs(*runtime_, runs.plan(), about, inputs);
  std::vector<NamedTensor> outputs;
  runs.run(taken, kept, go_on, [&](std::span<const Tensor> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      Tensor& value = outputs.emplace_back(NamedTensor{runs.plan().outputs[i].name, values[i]}).tensor;
      if (value.shape.empty()) value.shape = {1};  // as descriptions have it
    }
    if (keep) keep(outputs);
  });
  return outputs;
}

}  // namespace kvtide::coreml
