// builder.h: programs made operation by operation, for exports and for tests.
//
//   FunctionBuilder f("main");
//   const auto x = f.input("x", DataType::fp16, {1, 64});
//   const auto cache = f.state("cache", DataType::fp16, {1, 64});
//   const auto old = f.op("read_state", {{"input", cache}}, tensor(DataType::fp16, {1, 64}));
//   const auto sum = f.op("add", {{"x", old}, {"y", x}}, tensor(DataType::fp16, {1, 64}));
//   f.write_state(cache, sum);
//   f.output(sum);
//   write_package(make_package(std::move(f)), "sum.mlpackage");
//
// Types of results are the caller's: nothing is computed here. A parameter that is a constant becomes a const operation
// bound by name, as coremltools writes it; those of constexpr_ operations stay in place, as it does, too. Names are made unique and fit for MIL ([A-Za-z0-9_]).
// Ownership: a builder owns its function until take().
// Errors: invalid_argument: an unknown name, two inputs of one name.
// Thread rules: one caller.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "coreml/program/package.h"
#include "coreml/write/values.h"

namespace kvtide::coreml {

// What an operation is given: a name, a constant, or several of both ("values" of concat).
class Given {
 public:
  Given(std::string name) { bindings_.push_back({std::move(name), nullptr}); }
  Given(const char* name) : Given(std::string(name)) {}
  Given(Value value) { bindings_.push_back({"", std::make_shared<const Value>(std::move(value))}); }
  Given(int value) : Given(number(std::int32_t{value})) {}
  Given(bool value) : Given(number(value)) {}
  Given(std::initializer_list<int> values) : Given(ints(std::vector<std::int32_t>(values))) {}
  static Given tuple(const std::vector<std::string>& names);

  const std::vector<Binding>& bindings() const { return bindings_; }

 private:
  Given() = default;
  std::vector<Binding> bindings_;
};

struct NamedGiven {
  std::string parameter;
  Given given;
};
using GivenList = std::vector<NamedGiven>;

class FunctionBuilder {
 public:
  explicit FunctionBuilder(std::string name, std::string opset = "CoreML8");

  // An axis of several sizes is unknown in the program; the feature says which. Returns the name.
  std::string input(Feature feature);
  std::string input(std::string name, DataType dtype, Shape shape);
  std::string state(std::string name, DataType dtype, Shape shape);

  std::string constant(std::string name, Value value);
  // One result; `name`: of the result, or made from the type.
  std::string op(std::string_view type, GivenList inputs, ValueType result, std::string_view name = "");
  std::vector<std::string> op_many(std::string_view type, GivenList inputs, std::vector<ValueType> results,
                                   std::string_view name = "");
  void op_none(std::string_view type, GivenList inputs);  // no result: write_state

  std::string read_state(const std::string& state);
  void write_state(const std::string& state, const std::string& data);

  // A result of the function. `as`: its name outside, which an identity operation gives it where it has another.
  void output(const std::string& name, std::string_view as = "");

  const ValueType& type_of(const std::string& name) const;
  const Operation& last() const { return function_.block.operations.back(); }
  Block take_block();  // of a cond or while_loop: made by a builder of its own

  Function& function() { return function_; }
  FunctionDescription& description() { return description_; }

 private:
  Operation& add(std::string_view type, GivenList inputs, std::vector<ValueType> results,
                 std::string_view name);
  std::string unique(std::string_view wanted);
  void know(const std::string& name, ValueType type);

  Function function_;
  FunctionDescription description_;
  std::map<std::string, ValueType> types_;
  std::map<std::string, int> numbers_;  // the next that makes a name unique
};

// One or several functions as a package; the first is the default. Specification 9.
Package make_package(FunctionBuilder function);
Package make_package(std::vector<FunctionBuilder> functions);

// A name as MIL has them: what is not [A-Za-z0-9_] becomes an underscore, a leading digit gets one before it.
std::string mil_name(std::string_view name);

}  // namespace kvtide::coreml
