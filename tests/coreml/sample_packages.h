// sample_packages.h: valid packages that hold something of everything, and the comparison of two programs.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/program/package.h"
#include "coreml/write/builder.h"

namespace kvtide::testing {

namespace cm = kvtide::coreml;
using cm::DataType;

inline std::vector<std::byte> counting_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 37 + 5);
  return bytes;
}

// Elements of bytes that count; floats are kept finite by a shape of their own below.
inline cm::Value filled(DataType dtype, cm::Shape shape) {
  const std::size_t elements = *cm::elements_of(shape);
  std::vector<std::byte> bytes = counting_bytes(cm::bytes_for(dtype, elements));
  // What follows the last element in its byte says nothing, and text does not keep it.
  const std::size_t bits = elements * static_cast<std::size_t>(cm::bits_of(dtype));
  if (bits % 8 != 0) bytes.back() &= static_cast<std::byte>((1u << (bits % 8)) - 1);
  return cm::raw(dtype, std::move(shape), std::move(bytes));
}

inline constexpr DataType kEveryNumber[] = {
    DataType::fp16,   DataType::fp32,  DataType::fp64,  DataType::bf16,  DataType::int8,   DataType::int16,
    DataType::int32,  DataType::int64, DataType::int4,  DataType::uint8, DataType::uint16, DataType::uint32,
    DataType::uint64, DataType::uint4, DataType::uint2, DataType::uint1, DataType::uint6,  DataType::uint3};

// A function with a state, a condition and constants of every type, small and large.
inline cm::FunctionBuilder every_type_function(const std::string& name) {
  cm::FunctionBuilder f(name);
  cm::Feature x;
  x.name = "x";
  x.dtype = DataType::fp16;
  x.shape = {1, 16};
  x.ranges = {{1, 1}, {16, 64}};
  f.input(x);
  cm::Feature mode;
  mode.name = "mode";
  mode.dtype = DataType::int32;
  mode.shape = {1};
  mode.shapes = {{1}, {4}};
  f.input(mode);
  const auto cache = f.state("cache", DataType::fp16, {1, 16});
  for (const DataType dtype : kEveryNumber) {
    f.constant(cat("small_", cm::name_of(dtype)), filled(dtype, {2, 3}));
    f.constant(cat("large_", cm::name_of(dtype)), filled(dtype, {3, 8}));
    f.constant(cat("scalar_", cm::name_of(dtype)), filled(dtype, {}));
  }
  f.constant("flags", cm::flags({true, false, true}));
  f.constant("name", cm::text("a \"quoted\" text, a \\ and\nlines; \u00e9"));
  f.constant("none", cm::raw(DataType::int32, {0}, {}));
  const auto old = f.read_state(cache);
  const auto sum = f.op("add", {{"x", old}, {"y", "x"}}, cm::tensor(DataType::fp16, {1, 16}));
  f.write_state(cache, sum);
  const auto both =
      f.op("concat", {{"values", cm::Given::tuple({sum, old})}, {"axis", 0}, {"interleave", false}},
           cm::tensor(DataType::fp16, {2, 16}));
  const auto parts =
      f.op_many("split", {{"x", both}, {"num_splits", 2}, {"axis", 0}},
                {cm::tensor(DataType::fp16, {1, 16}), cm::tensor(DataType::fp16, {1, cm::kUnknown})});
  f.output(parts[0], "y");
  f.output(parts[1], "z");
  return f;
}

inline cm::Package every_type_package() {
  std::vector<cm::FunctionBuilder> functions;
  functions.push_back(every_type_function("infer"));
  functions.push_back(every_type_function("prefill"));
  cm::Package package = cm::make_package(std::move(functions));
  package.description.metadata = {{"context_length", "16"}, {"tokenizer", "gpt2"}};
  package.description.author = "me";
  package.program.build_info = {{"coremltools-version", "9.0"}};
  return package;
}

// One function: operations 0 to 7 are const (int32, immediate), const (string), const (fp16, of the weight file), const (uint3, of the
// weight file), read_state, add, write_state, linear. About 2 KiB.
inline cm::Package small_package() {
  cm::FunctionBuilder f("main");
  cm::Feature x;
  x.name = "x";
  x.dtype = DataType::fp16;
  x.shape = {1, 16};
  x.ranges = {{1, 4}, {16, 16}};
  f.input(x);
  cm::Feature ids;
  ids.name = "ids";
  ids.dtype = DataType::int32;
  ids.shape = {1};
  ids.shapes = {{1}, {4}};
  f.input(ids);
  const auto cache = f.state("cache", DataType::fp16, {1, 16});
  f.constant("axes", cm::ints({0, 1}));
  f.constant("mode", cm::text("EXACT"));
  const auto weight = f.constant("weight", filled(DataType::fp16, {16, 16}));
  f.constant("packed", filled(DataType::uint3, {7, 3}));
  const auto old = f.read_state(cache);
  const auto sum = f.op("add", {{"x", old}, {"y", "x"}}, cm::tensor(DataType::fp16, {cm::kUnknown, 16}));
  f.write_state(cache, sum);
  f.output(f.op("linear", {{"x", sum}, {"weight", weight}}, cm::tensor(DataType::fp16, {1, 16}), "y"));
  cm::Package package = cm::make_package(std::move(f));
  package.description.metadata = {{"context_length", "16"}};
  package.program.build_info = {{"coremltools-version", "9.0"}};
  return package;
}

// Without a weight file: for what has none at hand.
inline cm::Package weightless_package() {
  cm::FunctionBuilder f("main");
  const auto x = f.input("x", DataType::fp16, {1, 4});
  const auto cache = f.state("cache", DataType::fp16, {1, 4});
  for (const DataType dtype : kEveryNumber) f.constant(cat("c_", cm::name_of(dtype)), filled(dtype, {3}));
  f.constant("mode", cm::text("EXACT"));
  f.constant("mask", cm::flags({true, false}));
  const auto old = f.read_state(cache);
  const auto sum = f.op("add", {{"x", old}, {"y", x}}, cm::tensor(DataType::fp16, {cm::kUnknown, 4}));
  f.write_state(cache, sum);
  f.output(f.op("concat", {{"values", cm::Given::tuple({sum, old})}, {"axis", 0}},
                cm::tensor(DataType::fp16, {2, 4})),
           "y");
  cm::Package package = cm::make_package(std::move(f));
  package.program.build_info = {{"coremltools-version", "9.0"}};
  return package;
}

// Where two values differ; empty: nowhere. The order of a map is no difference.
inline std::string difference(const cm::ValueType& a, const cm::ValueType& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.shape != b.shape || a.any_rank != b.any_rank) return "type";
  if (a.parts.size() != b.parts.size()) return "parts of a type";
  for (std::size_t i = 0; i < a.parts.size(); ++i)
    if (!difference(a.parts[i], b.parts[i]).empty()) return "parts of a type";
  return "";
}

inline std::string difference(const cm::Value& a, const cm::Value& b) {
  if (!difference(a.type, b.type).empty()) return "type of a constant";
  if (!std::ranges::equal(a.bytes, b.bytes)) return "bytes";
  if (a.strings != b.strings) return "strings";
  if (a.parts.size() != b.parts.size() || a.dictionary.size() != b.dictionary.size())
    return "parts of a constant";
  for (std::size_t i = 0; i < a.parts.size(); ++i)
    if (const auto found = difference(a.parts[i], b.parts[i]); !found.empty()) return found;
  for (std::size_t i = 0; i < a.dictionary.size(); ++i) {
    if (const auto found = difference(a.dictionary[i].key, b.dictionary[i].key); !found.empty()) return found;
    if (const auto found = difference(a.dictionary[i].value, b.dictionary[i].value); !found.empty())
      return found;
  }
  return "";
}

inline std::string difference(const std::vector<cm::NamedType>& a, const std::vector<cm::NamedType>& b) {
  if (a.size() != b.size()) return "number of names";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name) return a[i].name + " is " + b[i].name;
    if (!difference(a[i].type, b[i].type).empty()) return "type of " + a[i].name;
  }
  return "";
}

std::string difference(const cm::Block& a, const cm::Block& b);

inline std::string difference(const cm::Operation& a, const cm::Operation& b) {
  if (a.type != b.type) return a.type + " is " + b.type;
  if (const auto found = difference(a.outputs, b.outputs); !found.empty()) return found;
  if (a.inputs.size() != b.inputs.size() || a.attributes.size() != b.attributes.size())
    return "number of inputs";
  for (const cm::Argument& input : a.inputs) {
    const cm::Argument* other = b.input(input.name);
    if (other == nullptr || other->bindings.size() != input.bindings.size()) return "input " + input.name;
    for (std::size_t i = 0; i < input.bindings.size(); ++i) {
      const cm::Binding &mine = input.bindings[i], &theirs = other->bindings[i];
      if (mine.name != theirs.name || !mine.value != !theirs.value) return "input " + input.name;
      if (mine.value && !difference(*mine.value, *theirs.value).empty())
        return "constant of input " + input.name;
    }
  }
  for (const cm::Attribute& attribute : a.attributes) {
    const cm::Value* other = b.attribute(attribute.name);
    if (other == nullptr) return "attribute " + attribute.name;
    if (const auto found = difference(attribute.value, *other); !found.empty()) return found;
  }
  if (a.blocks.size() != b.blocks.size()) return "number of blocks";
  for (std::size_t i = 0; i < a.blocks.size(); ++i)
    if (const auto found = difference(a.blocks[i], b.blocks[i]); !found.empty()) return found;
  return "";
}

inline std::string difference(const cm::Block& a, const cm::Block& b) {
  if (const auto found = difference(a.inputs, b.inputs); !found.empty()) return found;
  if (a.outputs != b.outputs) return "outputs of a block";
  if (a.operations.size() != b.operations.size()) return "number of operations";
  for (std::size_t i = 0; i < a.operations.size(); ++i)
    if (const auto found = difference(a.operations[i], b.operations[i]); !found.empty())
      return cat("operation ", i, " (", a.operations[i].type, "): ", found);
  return "";
}

inline std::string difference(const cm::Program& a, const cm::Program& b) {
  if (a.build_info != b.build_info) return "build info";
  if (a.functions.size() != b.functions.size()) return "number of functions";
  for (const cm::Function& function : a.functions) {
    const cm::Function* other = b.function(function.name);
    if (other == nullptr) return "function " + function.name;
    if (const auto found = difference(function.inputs, other->inputs); !found.empty())
      return "inputs: " + found;
    if (const auto found = difference(function.block, other->block); !found.empty()) return found;
  }
  return "";
}

inline std::string difference(const std::vector<cm::Feature>& a, const std::vector<cm::Feature>& b) {
  if (a.size() != b.size()) return "number of features";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].dtype != b[i].dtype || a[i].optional != b[i].optional)
      return a[i].name;
    if (a[i].shape != b[i].shape || a[i].shapes != b[i].shapes) return "shape of " + a[i].name;
    const auto same = [](const cm::AxisRange& x, const cm::AxisRange& y) {
      return x.least == y.least && x.most == y.most;
    };
    if (!std::ranges::equal(a[i].ranges, b[i].ranges, same)) return "ranges of " + a[i].name;
  }
  return "";
}

}  // namespace kvtide::testing
