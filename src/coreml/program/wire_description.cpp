#include "coreml/program/wire_description.h"

#include <limits>

#include "base/text.h"
#include "coreml/program/check_program.h"
#include "coreml/program/data_type.h"
#include "coreml/program/wire_values.h"

namespace kvtide::coreml {
namespace {

constexpr std::int64_t kLargestSizeOfAxis = std::numeric_limits<std::int64_t>::max();

DataType read_array_type(const WireMessage& message) {
  switch (message.integer("dataType")) {
    case 0x10010:
      return DataType::fp16;
    case 0x10020:
      return DataType::fp32;
    case 0x10040:
      return DataType::fp64;
    case 0x20020:
      return DataType::int32;
    case 0x20008:
      return DataType::int8;
    default:
      message.fail_at("dataType", cat(message.integer("dataType"), " is no type of an array"));
  }
}

void read_sizes(const WireMessage& message, Shape& into) {
  message.integers("shape", [&](std::int64_t size) {
    if (size < 0) message.fail_at("shape", cat("holds the size ", size));
    if (static_cast<std::int64_t>(into.size()) == kMostRank)
      message.fail_at("shape", cat("has more than ", kMostRank, " sizes"));
    into.push_back(size);
  });
}

void read_shapes(WireMessage message, Feature& feature) {
  std::int64_t number = 0;
  while (message.next()) {
    if (message.field() != 1) continue;
    feature.shapes.emplace_back();
    for (WireMessage shape = message.message("shapes", number++); shape.next();)
      if (shape.field() == 1) read_sizes(shape, feature.shapes.back());
  }
}

void read_ranges(WireMessage message, Feature& feature) {
  std::int64_t number = 0;
  while (message.next()) {
    if (message.field() != 1) continue;
    WireMessage part = message.message("sizeRanges", number++);
    AxisRange range{0, 0};
    for (WireMessage size = part; size.next();) {
      if (size.field() == 1) range.least = size.integer("lowerBound", 0, kLargestSizeOfAxis);
      if (size.field() == 2) range.most = size.integer("upperBound");
    }
    if (range.most < 0) range.most = kUnknown;
    if (range.most != kUnknown && range.most < range.least)
      part.fail(cat("goes from ", range.least, " to ", range.most));
    if (number > kMostRank) part.fail(cat("there are more than ", kMostRank));
    feature.ranges.push_back(range);
  }
}

void read_array(WireMessage message, Feature& feature) {
  for (WireMessage at = message; at.next();) {
    if (at.field() == 1) read_sizes(at, feature.shape);
    if (at.field() == 2) feature.dtype = read_array_type(at);
    if (at.field() == 21) read_shapes(at.message("enumeratedShapes"), feature);
    if (at.field() == 31) read_ranges(at.message("shapeRange"), feature);
    if (at.field() == 41) feature.default_value = static_cast<double>(at.integer("intDefaultValue"));
    if (at.field() == 51) feature.default_value = at.real("floatDefaultValue");
    if (at.field() == 61) feature.default_value = at.real("doubleDefaultValue");
  }
  if (feature.dtype == DataType::none) message.fail_at("dataType", "is missing");
  const std::size_t rank = feature.shape.size();
  if (rank == 0) return;  // of outputs that are as large as they get
  for (std::size_t i = 0; i < feature.shapes.size(); ++i)
    if (feature.shapes[i].size() != rank)
      message.fail_at("enumeratedShapes.shapes",
                      cat("has ", feature.shapes[i].size(), " sizes; the default has ", rank),
                      static_cast<std::int64_t>(i));
  if (!feature.ranges.empty() && feature.ranges.size() != rank)
    message.fail_at("shapeRange.sizeRanges",
                    cat("there are ", feature.ranges.size(), "; the shape has ", rank, " sizes"));
}

void read_feature_type(WireMessage message, Feature& feature) {
  bool found = false;
  while (message.next()) {
    if (message.field() == 1000) {
      feature.optional = message.flag("isOptional");
      continue;
    }
    found = found || message.field() <= 8;
    if (message.field() == 1) feature.dtype = DataType::int64;
    if (message.field() == 2) feature.dtype = DataType::fp64;
    if (message.field() == 3) feature.dtype = DataType::string;
    if (message.field() == 5) read_array(message.message("multiArrayType"), feature);
    if (message.field() != 8) continue;
    WireMessage state = message.message("stateType");
    while (state.next())
      if (state.field() == 1) read_array(state.message("arrayType"), feature);
    if (feature.dtype == DataType::none) state.fail_at("arrayType", "is missing");
  }
  if (!found) message.fail("names no type");
}

Feature read_feature(WireMessage message) {
  Feature out;
  bool typed = false;
  while (message.next()) {
    if (message.field() == 1) out.name = message.text("name");
    if (message.field() != 3) continue;
    read_feature_type(message.message("type"), out);
    typed = true;
  }
  if (out.name.empty()) message.fail_at("name", "is missing");
  if (!typed) message.fail_at("type", "is missing");
  return out;
}

void read_list(const WireMessage& message, std::string_view field, std::vector<Feature>& into) {
  if (into.size() == kMostFeatures) message.fail_at(field, cat("there are more than ", kMostFeatures));
  into.push_back(read_feature(message.message(field, static_cast<std::int64_t>(into.size()))));
}

FunctionDescription read_function_description(WireMessage message) {
  FunctionDescription out;
  while (message.next()) {
    if (message.field() == 1) out.name = message.text("name");
    if (message.field() == 2) read_list(message, "input", out.inputs);
    if (message.field() == 3) read_list(message, "output", out.outputs);
    if (message.field() == 6) read_list(message, "state", out.states);
  }
  if (out.name.empty()) message.fail_at("name", "is missing");
  return out;
}

void read_metadata(WireMessage message, Description& into) {
  while (message.next()) {
    if (message.field() == 1) into.short_description = message.text("shortDescription");
    if (message.field() == 2) into.version = message.text("versionString");
    if (message.field() == 3) into.author = message.text("author");
    if (message.field() == 4) into.license = message.text("license");
    if (message.field() == 100) into.metadata.push_back(message.text_entry("userDefined"));
  }
}

}  // namespace

void read_description(WireMessage message, Description& into) {
  FunctionDescription alone;
  std::int64_t number = 0;
  while (message.next()) {
    if (message.field() == 1) read_list(message, "input", alone.inputs);
    if (message.field() == 10) read_list(message, "output", alone.outputs);
    if (message.field() == 13) read_list(message, "state", alone.states);
    if (message.field() == 20) {
      WireMessage function = message.message("functions", number++);
      FunctionDescription read = read_function_description(function);
      if (into.functions.size() == kMostFunctions) function.fail(cat("there are more than ", kMostFunctions));
      if (into.function(read.name)) function.fail(cat("the function ", quoted(read.name), " stands twice"));
      into.functions.push_back(std::move(read));
    }
    if (message.field() == 21) into.default_function = message.text("defaultFunctionName");
    if (message.field() == 100) read_metadata(message.message("metadata"), into);
  }
  if (!into.functions.empty()) return;
  into.functions.push_back(std::move(alone));
}

}  // namespace kvtide::coreml
