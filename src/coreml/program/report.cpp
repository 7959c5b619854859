#include "coreml/program/report.h"

#include <algorithm>
#include <map>

#include "base/out_of_memory.h"
#include "coreml/program/census.h"
#include "coreml/program/data_type.h"
#include "kvtide/coreml.h"

namespace kvtide {
namespace coreml {
namespace {

Json feature_json(const Feature& feature, bool state) {
  Json out = Json::object();
  out.set("name", feature.name).set("type", type_of(feature)).set("shape", Json::array(feature.shape));
  if (!feature.shapes.empty()) out.set("shapes", Json(feature.shapes));
  if (!feature.ranges.empty()) {
    Json ranges = Json::array();
    for (const auto& [least, most] : feature.ranges) {
      Json range = Json::array();
      range.push(least).push(most == kUnknown ? Json() : Json(most));
      ranges.push(std::move(range));
    }
    out.set("ranges", std::move(ranges));
  }
  if (feature.optional) out.set("optional", true);
  if (feature.default_value) out.set("default", *feature.default_value);
  if (state) out.set("bytes", bytes_of(feature));
  return out;
}

Json list_json(const std::vector<Feature>& features, bool states = false) {
  Json out = Json::array();
  for (const Feature& feature : features) out.push(feature_json(feature, states));
  return out;
}

Json texts_json(const std::vector<std::pair<std::string, std::string>>& texts) {
  Json out = Json::object();
  const std::map<std::string, std::string> unique(texts.begin(), texts.end());
  for (const auto& [name, text] : unique) out.set(name, text);
  return out;
}

}  // namespace

std::string type_of(const Feature& feature) {
  return feature.dtype == DataType::none ? "other" : std::string(name_of(feature.dtype));
}

std::int64_t bytes_of_states(const std::vector<Feature>& states) {
  std::int64_t bytes = 0;
  for (const Feature& state : states) bytes += bytes_of(state);
  return bytes;
}

OperationCounts operations_of(const Package& package, const std::string& function) {
  const Function* found = package.program.function(function);
  if (found == nullptr) return {};
  const auto counts = operations_by_type(*found);
  OperationCounts sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

std::int64_t number_of(const OperationCounts& counts) {
  std::int64_t total = 0;
  for (const auto& count : counts) total += count.second;
  return total;
}

Json package_report(const Package& package) {
  const Description& description = package.description;
  Json functions = Json::array(), weights = Json::array(), stages = Json::array(), out = Json::object();
  for (const FunctionDescription& each : description.functions) {
    const OperationCounts counts = operations_of(package, each.name);
    Json operations = Json::object(), function = Json::object();
    for (const auto& [type, count] : counts) operations.set(type, count);
    const Function* found = package.program.function(each.name);
    function.set("name", each.name)
        .set("opset", found != nullptr ? Json(found->opset) : Json())
        .set("inputs", list_json(each.inputs))
        .set("outputs", list_json(each.outputs))
        .set("states", list_json(each.states, true))
        .set("state_bytes", bytes_of_states(each.states))
        .set("operation_count", number_of(counts))
        .set("operations", std::move(operations));
    functions.push(std::move(function));
  }
  for (const auto& [type, count] : weights_by_type(package)) {
    Json weight = Json::object();
    weight.set("type", name_of(type)).set("count", count.count).set("elements", count.elements);
    weights.push(std::move(weight.set("bytes", count.bytes)));
  }
  for (const Package& stage : package.stages) stages.push(package_report(stage));
  out.set("kind", package.stages.empty() ? "program" : "pipeline")
      .set("specification", description.specification)
      .set("default_function", description.default_function)
      .set("functions", std::move(functions))
      .set("weights", std::move(weights))
      .set("description", description.short_description)
      .set("version", description.version)
      .set("author", description.author)
      .set("license", description.license)
      .set("metadata", texts_json(description.metadata))
      .set("build_info", texts_json(package.program.build_info))
      .set("stages", std::move(stages));
  return out;
}

}  // namespace coreml

std::string inspect_coreml(const std::string& package) {
  return or_out_of_memory([&] { return coreml::package_report(coreml::open_package(package)).text(); });
}

}  // namespace kvtide
