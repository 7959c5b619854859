#include "coreml/program/compiled_model.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "base/json/json_fields.h"
#include "base/json/json_value.h"
#include "base/text.h"
#include "coreml/program/check_program.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

// 9 of "ios18" and "CoreML8"; 0 of what is no such name.
std::int32_t specification_of(std::string_view opset) {
  int number = 0;
  for (const auto& [prefix, ahead] : {std::pair<std::string_view, int>{"ios", -9}, {"CoreML", 1}}) {
    if (!opset.starts_with(prefix)) continue;
    const auto digits = opset.substr(prefix.size());
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (number > 0 && number < 100) return std::max(number + ahead, 0);
  }
  return 0;
}

Feature feature_of(const NamedType& named) {
  Feature out;
  out.name = named.name;
  out.dtype = named.type.dtype;
  out.shape = named.type.shape;
  // A description has a scalar as one element.
  if (named.type.kind == ValueType::Kind::tensor && !named.type.any_rank && out.shape.empty())
    out.shape = {1};
  return out;
}

// All whole numbers of a constant, one after another.
std::vector<std::int64_t> numbers_of(const Value& value) {
  std::vector<std::int64_t> out;
  if (value.type.kind == ValueType::Kind::tensor && value.type.dtype == DataType::int32)
    for (std::size_t at = 0; at + 4 <= value.bytes.size(); at += 4) {
      std::int32_t number;
      std::memcpy(&number, value.bytes.data() + at, 4);
      out.push_back(number);
    }
  for (const Value& part : value.parts)
    for (const std::int64_t number : numbers_of(part)) out.push_back(number);
  return out;
}

using Inputs = std::unordered_map<std::string_view, Feature*>;

Feature* input_named(const Inputs& inputs, const Value& key) {
  const auto found = key.strings.size() == 1 ? inputs.find(key.strings[0]) : inputs.end();
  return found == inputs.end() ? nullptr : found->second;
}

bool fits(const Feature& feature, const Shape& shape) {
  return shape.size() == feature.shape.size() &&
         std::all_of(shape.begin(), shape.end(), [](std::int64_t size) { return size >= 0; });
}

void take_ranges(Feature& feature, const std::vector<std::int64_t>& bounds) {
  if (bounds.size() != 2 * feature.shape.size()) return;
  std::vector<AxisRange> ranges;
  for (std::size_t i = 0; i < bounds.size(); i += 2) {
    const bool open = bounds[i + 1] < 0;
    if (bounds[i] < 0 || (!open && bounds[i + 1] < bounds[i])) return;
    ranges.push_back({bounds[i], open ? kUnknown : bounds[i + 1]});
  }
  feature.ranges = std::move(ranges);
}

// (("DefaultShapes", {{"x", [1, 1]}}), ("RangeDims", {{"x", [[1, 1], [1, 128]]}}), ...); what is not so is left out.
void take_shapes(FunctionDescription& function, const Value& flexible) {
  Inputs inputs;
  for (Feature& input : function.inputs) inputs[input.name] = &input;
  for (const Value& pair : flexible.parts) {
    if (pair.parts.size() != 2 || pair.parts[0].strings.size() != 1) continue;
    const std::string& kind = pair.parts[0].strings[0];
    for (const auto& [key, held] : pair.parts[1].dictionary) {
      if (kind == "EnumeratedShapes") {
        for (const auto& [name, shape] : held.dictionary) {
          Feature* input = input_named(inputs, name);
          if (input != nullptr && fits(*input, numbers_of(shape))) input->shapes.push_back(numbers_of(shape));
        }
        continue;
      }
      Feature* input = input_named(inputs, key);
      if (input == nullptr) continue;
      if (kind == "DefaultShapes" && fits(*input, numbers_of(held))) input->shape = numbers_of(held);
      if (kind == "RangeDims") take_ranges(*input, numbers_of(held));
    }
  }
}

// "[1, 64]" as numbers; metadata.json has lists as text.
std::vector<std::vector<std::int64_t>> lists_of(const JsonFields& fields, std::string_view key) {
  const auto text = fields.text(key);
  if (!text || text->empty()) return {};
  const JsonValue json = JsonValue::parse(*text, fields.file());
  std::vector<std::vector<std::int64_t>> out;
  const auto read = [&](const JsonValue& list) {
    out.emplace_back();
    if (list.list() == nullptr) fields.wrong(key, "lists of whole numbers");
    for (const JsonValue& item : *list.list()) {
      if (item.integer() == nullptr) fields.wrong(key, "lists of whole numbers");
      out.back().push_back(*item.integer());
    }
  };
  if (json.list() == nullptr) fields.wrong(key, "a list");
  if (json.list()->empty() || (*json.list())[0].list() == nullptr)
    read(json);
  else
    for (const JsonValue& item : *json.list()) read(item);
  return out;
}

void add_features(std::vector<Feature>& features, const JsonFields& schema, std::string_view key) {
  if (!schema.has(key)) return;
  if (schema.list(key).size() > kMostFeatures) schema.wrong(key, cat("a list of at most ", kMostFeatures));
  for (const JsonFields& fields : schema.objects(key)) {
    const auto name = fields.text("name");
    const auto found = std::find_if(features.begin(), features.end(),
                                    [&](const Feature& each) { return each.name == name; });
    if (found == features.end()) continue;
    found->optional = fields.text("isOptional") == "1";
    const auto shape = lists_of(fields, "shape");
    if (shape.size() == 1 && fits(*found, shape[0])) found->shape = shape[0];
    std::vector<std::int64_t> bounds;
    for (const auto& pair : lists_of(fields, "shapeRange"))
      bounds.insert(bounds.end(), pair.begin(), pair.end());
    if (!bounds.empty()) take_ranges(*found, bounds);
    if (!found->shapes.empty()) continue;
    for (const auto& each : lists_of(fields, "enumeratedShapes"))
      if (fits(*found, each)) found->shapes.push_back(each);
  }
}

void add_schema(FunctionDescription& function, const JsonFields& schema) {
  add_features(function.inputs, schema, "inputSchema");
  add_features(function.outputs, schema, "outputSchema");
}

}  // namespace

Description describe(const MilText& text) {
  Description out;
  for (std::size_t i = 0; i < text.program.functions.size(); ++i) {
    const Function& function = text.program.functions[i];
    FunctionDescription about;
    about.name = function.name;
    for (const NamedType& input : function.inputs)
      (input.type.kind == ValueType::Kind::state ? about.states : about.inputs).push_back(feature_of(input));
    std::unordered_map<std::string_view, const NamedType*> made;
    for (const NamedType& input : function.inputs) made[input.name] = &input;
    for (const Operation& operation : function.block.operations)
      for (const NamedType& output : operation.outputs) made[output.name] = &output;
    for (const std::string& output : function.block.outputs)
      about.outputs.push_back(feature_of(*made.at(output)));
    for (const Attribute& attribute : text.attributes[i])
      if (attribute.name == "FlexibleShapeInformation") take_shapes(about, attribute.value);
    out.specification = std::max(out.specification, specification_of(function.opset));
    out.functions.push_back(std::move(about));
  }
  out.default_function = out.function("main") ? "main" : out.functions[0].name;
  return out;
}

void add_metadata(Description& description, std::string_view text, const std::string& file) {
  const JsonValue json = JsonValue::parse(text, file);
  const bool listed = json.list() != nullptr && json.list()->size() == 1;
  const JsonFields fields(listed ? (*json.list())[0] : json, file);
  description.specification =
      static_cast<std::int32_t>(fields.count("specificationVersion", 1, 1000, description.specification));
  description.short_description = fields.text("shortDescription").value_or("");
  description.version = fields.text("version").value_or("");
  description.author = fields.text("author").value_or("");
  description.license = fields.text("license").value_or("");
  if (const JsonValue* own = fields.find("userDefinedMetadata"); own != nullptr && own->object() != nullptr)
    for (const auto& [name, value] : *own->object())
      if (value.text() != nullptr) description.metadata.emplace_back(name, *value.text());
  if (const auto name = fields.text("defaultFunctionName"); name && description.function(*name))
    description.default_function = *name;
  for (FunctionDescription& function : description.functions)
    if (function.name == description.default_function) add_schema(function, fields);
  if (!fields.has("functions")) return;
  if (fields.list("functions").size() > kMostFunctions)
    fields.wrong("functions", cat("a list of at most ", kMostFunctions));
  for (const JsonFields& schema : fields.objects("functions"))
    for (FunctionDescription& function : description.functions)
      if (schema.text("name") == function.name) add_schema(function, schema);
}

}  // namespace kvtide::coreml
