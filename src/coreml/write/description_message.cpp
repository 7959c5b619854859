// description_message.cpp: inputs, outputs and states as a package describes them.

#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/write/program_message.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

std::int64_t array_code(const Feature& feature) {
  switch (feature.dtype) {
    case DataType::fp16:
      return 65552;
    case DataType::fp32:
      return 65568;
    case DataType::fp64:
      return 65600;
    case DataType::int32:
      return 131104;
    case DataType::int8:
      return 131080;
    default:
      throw Error(ErrorCode::unsupported,
                  cat("the feature ", quoted(feature.name), " has the type ", name_of(feature.dtype),
                      "; fp16, fp32, fp64, int32 and int8 are possible"));
  }
}

void write_shape_choice(const Feature& feature, MessageWriter& array) {
  MessageWriter choice;
  if (!feature.shapes.empty()) {
    for (const Shape& shape : feature.shapes) {
      MessageWriter one;
      one.packed_integers(1, std::span<const std::int64_t>(shape));
      choice.message(1, one);
    }
    array.message(21, choice);
  } else if (!feature.ranges.empty()) {
    for (const AxisRange& range : feature.ranges) {
      MessageWriter one;
      one.integer(1, range.least);
      one.integer(2, range.most);
      choice.message(1, one);
    }
    array.message(31, choice);
  }
}

void write_default(const Feature& feature, MessageWriter& array) {
  if (!feature.default_value) return;
  if (feature.dtype == DataType::int32)
    array.integer(41, static_cast<std::int64_t>(*feature.default_value));
  else if (feature.dtype == DataType::fp64)
    array.number(61, *feature.default_value);
  else
    array.number32(51, static_cast<float>(*feature.default_value));
}

void write_feature(const Feature& feature, bool is_state, MessageWriter& out, std::uint32_t field) {
  MessageWriter array, type, message;
  array.packed_integers(1, std::span<const std::int64_t>(feature.shape));
  array.integer(2, array_code(feature));
  write_shape_choice(feature, array);
  write_default(feature, array);
  if (is_state) {
    MessageWriter wrapped;
    wrapped.message(1, array);
    type.message(8, wrapped);
  } else {
    type.message(5, array);
  }
  if (feature.optional) type.integer(1000, 1);
  message.text(1, feature.name);
  message.message(3, type);
  out.message(field, message);
}

struct FeatureFields {
  std::uint32_t input, output, state;
};

void write_features(const FunctionDescription& function, const FeatureFields& fields, MessageWriter& out) {
  for (const Feature& feature : function.inputs) write_feature(feature, false, out, fields.input);
  for (const Feature& feature : function.outputs) write_feature(feature, false, out, fields.output);
  for (const Feature& feature : function.states) write_feature(feature, true, out, fields.state);
}

void write_metadata(const Description& description, MessageWriter& out) {
  MessageWriter metadata;
  if (!description.short_description.empty()) metadata.text(1, description.short_description);
  if (!description.version.empty()) metadata.text(2, description.version);
  if (!description.author.empty()) metadata.text(3, description.author);
  if (!description.license.empty()) metadata.text(4, description.license);
  for (const auto& [key, value] : description.metadata) {
    MessageWriter entry;
    entry.text(1, key);
    entry.text(2, value);
    metadata.message(100, entry);
  }
  out.message(100, metadata);
}

}  // namespace

// One function called main is described at the top; several have lists of their own.
void write_description(const Description& description, MessageWriter& out) {
  if (description.functions.size() == 1 && description.functions.front().name == "main") {
    write_features(description.functions.front(), {1, 10, 13}, out);
  } else {
    for (const FunctionDescription& function : description.functions) {
      MessageWriter message;
      message.text(1, function.name);
      write_features(function, {2, 3, 6}, message);
      out.message(20, message);
    }
    out.text(21, description.default_function);
  }
  write_metadata(description, out);
}

}  // namespace kvtide::coreml
