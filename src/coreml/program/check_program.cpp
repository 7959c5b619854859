#include "coreml/program/check_program.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/text.h"
#include "coreml/program/data_type.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

constexpr std::size_t kMostInputs = 64;  // of an operation

// Names of one function in the order in which they are made.
class NameChecker {
 public:
  NameChecker(const Program& program, Places places, std::string_view path)
      : program_(program), fields_(places == Places::fields), path_(path) {}

  void check(const Function& function) {
    word(function.name, std::string(path_), "a function");
    word(function.opset, std::string(path_), "an opset");
    const std::string place =
        fields_ ? cat(path_, ".functions[", function.name, "]") : cat("function ", quoted(function.name));
    if (function.inputs.size() > kMostFeatures || function.block.outputs.size() > kMostFeatures)
      fail(place, cat("has more than ", kMostFeatures, " inputs or outputs"));
    for (const NamedType& input : function.inputs) make(input.name, place);
    check(function.block, fields_ ? cat(place, ".block_specializations[", function.opset, "]") : place);
  }

 private:
  [[noreturn]] void fail(const std::string& place, const std::string& why) const {
    throw Error(ErrorCode::bad_format, cat(program_.source, ": ", place, ": ", why));
  }

  // Printed text is safe for a terminal, and reads back.
  void word(const std::string& name, const std::string& place, std::string_view what) const {
    if (name.empty()) fail(place, cat("has ", what, " without a name"));
    for (const char c : name)
      if (static_cast<unsigned char>(c) <= ' ' || c == 127 || c == '"')
        fail(place, cat("has ", what, " ", quoted(name), ", which no name may be"));
  }

  void make(const std::string& name, const std::string& place) {
    word(name, place, "a value");
    if (!known_.insert(name).second) fail(place, cat("makes ", quoted(name), ", which was made before"));
    order_.push_back(name);
  }

  void use(const std::string& name, const std::string& place) const {
    if (!known_.contains(name)) fail(place, cat("uses ", quoted(name), ", which nothing before it makes"));
  }

  void check(const Block& block, const std::string& place) {
    for (const NamedType& input : block.inputs) make(input.name, place);
    for (std::size_t i = 0; i < block.operations.size(); ++i) {
      const Operation& operation = block.operations[i];
      check(operation, fields_ ? cat(place, ".operations[", i, "]") : cat("line ", operation.line));
    }
    for (const std::string& output : block.outputs)
      use(output, cat(place, fields_ ? ".outputs" : ": output"));
  }

  void check(const Operation& operation, const std::string& place) {
    word(operation.type, place, "an operation");
    for (const Attribute& attribute : operation.attributes) word(attribute.name, place, "an attribute");
    if (operation.inputs.size() > kMostInputs) fail(place, cat("has more than ", kMostInputs, " inputs"));
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const Argument& argument = operation.inputs[i];
      word(argument.name, place, "an input");
      for (std::size_t j = 0; j < i; ++j)
        if (operation.inputs[j].name == argument.name)
          fail(place, cat("has two inputs ", quoted(argument.name)));
      for (const Binding& binding : argument.bindings)
        if (!binding.value && !known_.contains(binding.name))
          use(binding.name, cat(place, fields_ ? ".inputs[" : ": input [", argument.name, "]"));
    }
    for (std::size_t i = 0; i < operation.blocks.size(); ++i) {
      const std::size_t outside = order_.size();
      check(operation.blocks[i], fields_ ? cat(place, ".blocks[", i, "]") : place);
      for (; order_.size() > outside; order_.pop_back()) known_.erase(order_.back());
    }
    for (const NamedType& output : operation.outputs) make(output.name, place);
  }

  const Program& program_;
  const bool fields_;
  const std::string_view path_;
  std::unordered_set<std::string_view> known_;
  std::vector<std::string_view> order_;
};

class FeatureChecker {
 public:
  FeatureChecker(const Program& program, std::string place) : program_(program), place_(std::move(place)) {}

  void inputs(const std::vector<Feature>& features, const Function& function, bool states) const {
    const std::string_view list = states ? "state" : "input";
    const auto count = static_cast<std::size_t>(std::count_if(
        function.inputs.begin(), function.inputs.end(),
        [&](const NamedType& input) { return (input.type.kind == ValueType::Kind::state) == states; }));
    if (count != features.size())
      fail(list,
           cat("there are ", features.size(), "; the function ", quoted(function.name), " has ", count));
    for (const Feature& feature : features) {
      const NamedType* found = nullptr;
      for (const NamedType& input : function.inputs)
        if (input.name == feature.name && (input.type.kind == ValueType::Kind::state) == states)
          found = &input;
      if (found == nullptr)
        fail(list, cat(quoted(feature.name), " is no ", list, " of the function ", quoted(function.name)));
      if (states && (found->type.dtype != feature.dtype || found->type.shape != feature.shape))
        fail(list, cat(quoted(feature.name), " has another type or shape in the program"));
    }
  }

  void outputs(const std::vector<Feature>& features, const Function& function) const {
    const std::unordered_set<std::string_view> made(function.block.outputs.begin(),
                                                    function.block.outputs.end());
    for (const Feature& feature : features)
      if (!made.contains(feature.name))
        fail("output", cat(quoted(feature.name), " is no output of the function ", quoted(function.name)));
  }

 private:
  [[noreturn]] void fail(std::string_view list, const std::string& why) const {
    throw Error(ErrorCode::bad_format, cat(program_.source, ": ", place_, ".", list, ": ", why));
  }

  const Program& program_;
  const std::string place_;
};

}  // namespace

void check_program(const Program& program, Places places, std::string_view path) {
  if (program.functions.size() > kMostFunctions)
    throw Error(ErrorCode::bad_format,
                cat(program.source, ": ", path, ": has more than ", kMostFunctions, " functions"));
  for (const Function& function : program.functions) NameChecker(program, places, path).check(function);
}

void check_description(const Description& description, const Program& program, std::string_view path) {
  const auto fail = [&](std::string_view field, const std::string& why) {
    throw Error(ErrorCode::bad_format, cat(program.source, ": ", path, ".", field, ": ", why));
  };
  for (const FunctionDescription& each : description.functions) {
    const Function* function = program.function(each.name);
    if (function == nullptr) return fail("functions", cat("the program has no function ", quoted(each.name)));
    const FeatureChecker checker(program, description.functions.size() == 1
                                              ? std::string(path)
                                              : cat(path, ".functions[", quoted(each.name), "]"));
    checker.inputs(each.inputs, *function, false);
    checker.inputs(each.states, *function, true);
    checker.outputs(each.outputs, *function);
  }
  if (description.function(description.default_function) == nullptr)
    fail("defaultFunctionName", cat("there is no function ", quoted(description.default_function)));
}

}  // namespace kvtide::coreml
