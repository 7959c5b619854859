#include "coreml/program/pipeline.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/text.h"
#include "coreml/program/check_program.h"
#include "coreml/program/data_type.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

using Names = std::unordered_map<std::string, std::string>;

// Names inside a stage get its prefix, but those of its inputs, for which `given` has other names.
class Renaming {
 public:
  Renaming(std::string prefix, Names given) : prefix_(std::move(prefix)), given_(std::move(given)) {}

  std::string operator()(const std::string& name) const {
    const auto found = given_.find(name);
    return found == given_.end() ? prefix_ + name : found->second;
  }

  Operation renamed(Operation operation) const {
    for (Argument& argument : operation.inputs)
      for (Binding& binding : argument.bindings)
        if (!binding.name.empty()) binding.name = (*this)(binding.name);
    for (NamedType& output : operation.outputs) output.name = (*this)(output.name);
    for (Block& block : operation.blocks) rename(block);
    return operation;
  }

 private:
  void rename(Block& block) const {
    for (NamedType& input : block.inputs) input.name = (*this)(input.name);
    for (std::string& output : block.outputs) output = (*this)(output);
    for (Operation& operation : block.operations) operation = renamed(std::move(operation));
  }

  std::string prefix_;
  Names given_;
};

class Joining {
 public:
  explicit Joining(const Package& pipeline) : pipeline_(pipeline) {
    result_.path = pipeline.path;
    result_.files = pipeline.files;
    result_.description = pipeline.description;
    described_ = &result_.description.functions.at(0);
    function_.name = described_->name;
  }

  Package join() {
    for (const Package& stage : pipeline_.stages) add(stage);
    for (const Feature& input : described_->inputs)
      if (!available_.contains(input.name)) {  // no stage takes it
        ValueType type;
        type.dtype = input.dtype;
        type.shape = input.shape;
        take_input(input.name, std::move(type));
      }
    for (const Feature& output : described_->outputs) give(output.name);
    result_.program.source = pipeline_.path;
    result_.program.functions.push_back(std::move(function_));
    check_program(result_.program, Places::fields, "pipeline");
    check_description(result_.description, result_.program, "description");
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::bad_format, cat(pipeline_.path, ": pipeline.models[", number_, "]: ", why));
  }

  void add(const Package& stage) {
    if (!stage.stages.empty()) return add(as_one_program(stage));
    const Function* function = stage.program.function(stage.description.default_function);
    if (function == nullptr) fail(cat("has no function ", quoted(stage.description.default_function)));
    const std::string prefix = cat("stage", number_, "_");
    Names taken;
    for (const NamedType& input : function->inputs)
      taken[input.name] = input.type.kind == ValueType::Kind::state
                              ? state(input, stage)
                              : value(input, cat(prefix, input.name, "_as_it_is_taken"));
    const Renaming names(prefix, std::move(taken));
    std::unordered_map<std::string, ValueType> types;
    for (const Operation& operation : function->block.operations) {
      for (const NamedType& output : operation.outputs) types[output.name] = output.type;
      function_.block.operations.push_back(names.renamed(operation));
    }
    for (const std::string& output : function->block.outputs)
      if (types.contains(output)) available_[output] = {names(output), types[output]};
    function_.opset = function->opset;
    ++number_;
  }

  // The state's name is the same in every stage.
  std::string state(const NamedType& input, const Package& stage) {
    const auto same = std::find_if(function_.inputs.begin(), function_.inputs.end(),
                                   [&](const NamedType& one) { return one.name == input.name; });
    if (same != function_.inputs.end()) {
      if (same->type.kind != ValueType::Kind::state || same->type.dtype != input.type.dtype ||
          same->type.shape != input.type.shape)
        fail(cat("keeps state ", quoted(input.name), ", which is something else in a stage before it"));
      return input.name;
    }
    function_.inputs.push_back(input);
    if (feature_named(described_->states, input.name) == nullptr) {
      const FunctionDescription* about = stage.description.function(stage.description.default_function);
      const Feature* feature = about == nullptr ? nullptr : feature_named(about->states, input.name);
      if (feature == nullptr)
        fail(cat("keeps state ", quoted(input.name), ", which its description has not"));
      described_->states.push_back(*feature);
    }
    return input.name;
  }

  // What the stages before give under this name, or the pipeline's own input, in the type that is wanted.
  std::string value(const NamedType& input, const std::string& fresh) {
    if (!available_.contains(input.name)) {
      if (feature_named(described_->inputs, input.name) == nullptr)
        fail(cat("takes ", quoted(input.name),
                 ", which no stage before it gives, and the pipeline does not take"));
      take_input(input.name, input.type);
    }
    const NamedType& found = available_.at(input.name);
    const bool ranks = !found.type.any_rank && !input.type.any_rank;
    if (ranks && found.type.shape.size() != input.type.shape.size())
      fail(cat("takes ", quoted(input.name), " with ", input.type.shape.size(), " axes, and is given ",
               found.type.shape.size()));
    if (found.type.dtype == input.type.dtype) return found.name;
    Value dtype;
    dtype.type.dtype = DataType::string;
    dtype.strings = {std::string(name_of(input.type.dtype))};
    add_operation("cast", found.name, {fresh, input.type},
                  {{"dtype", {{"", std::make_shared<const Value>(std::move(dtype))}}}});
    return fresh;
  }

  void take_input(const std::string& name, ValueType type) {
    function_.inputs.push_back({name, type});
    available_[name] = {name, std::move(type)};
  }

  void give(const std::string& name) {
    const auto found = available_.find(name);
    if (found == available_.end())
      throw Error(ErrorCode::bad_format, cat(pipeline_.path, ": description.output: ", quoted(name),
                                             " is what no stage of the pipeline gives"));
    if (found->second.name != name)
      add_operation("identity", found->second.name, {name, found->second.type}, {});
    function_.block.outputs.push_back(name);
  }

  void add_operation(const char* type, const std::string& x, NamedType output, std::vector<Argument> more) {
    Operation operation;
    operation.type = type;
    operation.inputs = std::move(more);
    operation.inputs.insert(operation.inputs.begin(), {"x", {{x, nullptr}}});
    operation.outputs = {std::move(output)};
    operation.line = function_.block.operations.size() + 1;
    function_.block.operations.push_back(std::move(operation));
  }

  const Package& pipeline_;
  Package result_;
  FunctionDescription* described_ = nullptr;
  Function function_;
  std::map<std::string, NamedType> available_;  // by the name of the feature: the value that holds it now
  std::size_t number_ = 0;                      // of the stage
};

}  // namespace

Package as_one_program(const Package& pipeline) { return Joining(pipeline).join(); }

}  // namespace kvtide::coreml
