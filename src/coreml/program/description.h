// description.h: what a Core ML model says of itself: its functions with their inputs, outputs and states.
//
// A function's lists are those of the model's description; a compiled model's come from its program and metadata.json.
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coreml/program/program.h"

namespace kvtide::coreml {

// The sizes that one axis may have; `most` of kUnknown: no limit.
struct AxisRange {
  std::int64_t least = 1;
  std::int64_t most = kUnknown;
};

// An input, an output or a state.
struct Feature {
  std::string name;
  DataType dtype = DataType::none;
  Shape shape;                    // the default
  std::vector<Shape> shapes;      // enumerated: all that are allowed, or empty
  std::vector<AxisRange> ranges;  // by axis, or empty: `shape` or `shapes` alone
  bool optional = false;
  std::optional<double> default_value;
};

struct FunctionDescription {
  std::string name;  // "main"
  std::vector<Feature> inputs, outputs, states;
};

struct Description {
  std::int32_t specification = 0;  // 9: the first with states
  std::vector<FunctionDescription> functions;
  std::string default_function;
  std::string short_description, version, author, license;
  std::vector<std::pair<std::string, std::string>> metadata;  // userDefined

  const FunctionDescription* function(std::string_view wanted) const;  // nullptr: there is none
};

const Feature* feature_named(const std::vector<Feature>& features,
                             std::string_view name);  // nullptr: there is none

}  // namespace kvtide::coreml
