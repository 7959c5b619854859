// kvtide coreml inspect: what a Core ML model holds: functions with their inputs, states and outputs, operations by count,
// weights by type. Runs nothing, and prints whatever a hostile file says in escaped form.
#include <algorithm>
#include <vector>

#include "base/refuse.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/inspect_folder.h"
#include "cli/optional/coreml_actions.h"
#include "cli/output/columns.h"
#include "cli/output/terminal.h"
#include "coreml/decode/packages_at.h"
#include "coreml/program/census.h"
#include "coreml/program/data_type.h"
#include "coreml/program/mil_printer.h"
#include "coreml/program/package.h"
#include "coreml/program/report.h"

namespace kvtide {
namespace {

std::string list_of_sizes(const coreml::Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += cat(i == 0 ? "" : ", ", shape[i] == coreml::kUnknown ? "?" : cat(shape[i]));
  return text + "]";
}

// "[1, 1..128]", "[1, 1] | [1, 64]"
std::string allowed_sizes(const coreml::Feature& feature) {
  std::string text;
  if (!feature.shapes.empty()) {
    for (const coreml::Shape& shape : feature.shapes)
      text += cat(text.empty() ? "" : " | ", list_of_sizes(shape));
    return text;
  }
  if (feature.ranges.empty()) return feature.shape.empty() ? "any shape" : list_of_sizes(feature.shape);
  for (const auto& [least, most] : feature.ranges)
    text += cat(text.empty() ? "[" : ", ",
                least == most ? cat(least) : cat(least, "..", most == coreml::kUnknown ? "" : cat(most)));
  return text + "]";
}

std::string indented(const std::string& table) {
  std::string out;
  for (std::size_t at = 0; at < table.size();) {
    const std::size_t end = std::min(table.find('\n', at), table.size() - 1);
    out += "  " + table.substr(at, end - at + 1);
    at = end + 1;
  }
  return out;
}

void add_features(std::string& text, std::string_view title, const std::vector<coreml::Feature>& features,
                  bool states) {
  if (features.empty()) return;
  text += cat("  ", title, "\n");
  for (const coreml::Feature& feature : features)
    text += cat("    ", column(shown(feature.name), 28), column(coreml::type_of(feature), 7),
                allowed_sizes(feature), states ? cat("  ", bytes_text(coreml::bytes_of(feature))) : "",
                feature.optional ? "  optional" : "", "\n");
}

std::string package_listing(const coreml::Package& package, std::string_view name) {
  const coreml::Description& description = package.description;
  std::string text = cat(name, ": ", package.stages.empty() ? "ML program" : "pipeline");
  if (!package.stages.empty()) text += cat(" of ", package.stages.size(), " models");
  if (description.specification > 0) text += cat(", specification ", description.specification);
  text += "\n";
  if (!description.short_description.empty())
    text += cat("  ", quoted(description.short_description, 200), "\n");
  for (const coreml::FunctionDescription& each : description.functions) {
    const auto counts = coreml::operations_of(package, each.name);
    const coreml::Function* function = package.program.function(each.name);
    text += cat(
        "\nFunction ", shown(each.name), function != nullptr ? cat(" (", shown(function->opset), ")") : "",
        description.functions.size() > 1 && each.name == description.default_function ? ", the default" : "",
        "\n");
    add_features(text, "Inputs", each.inputs, false);
    add_features(text, cat("States: ", bytes_text(coreml::bytes_of_states(each.states))), each.states, true);
    add_features(text, "Outputs", each.outputs, false);
    if (counts.empty()) continue;
    text += cat("  Operations: ", count_text(coreml::number_of(counts)), "\n");
    for (const auto& [type, count] : counts)
      text += cat("    ", column(shown(type), 40), count_text(count), "\n");
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [type, count] : coreml::weights_by_type(package))
    rows.push_back({std::string(coreml::name_of(type)), count_text(count.count),
                    count_text(count.elements) + " elements", bytes_text(count.bytes)});
  if (!rows.empty()) text += "\nWeights\n" + indented(columns_text(rows));
  const auto add_texts = [&](std::string_view title, const auto& texts) {
    if (!texts.empty()) text += cat("\n", title, "\n");
    for (const auto& [key, value] : texts) text += cat("  ", shown(key), " = ", quoted(value, 200), "\n");
  };
  add_texts("Metadata", description.metadata);
  add_texts("Made by", package.program.build_info);
  for (std::size_t i = 0; i < package.stages.size(); ++i)
    text += "\n" + package_listing(package.stages[i], cat("Model ", i + 1));
  return text;
}

}  // namespace

int coreml_inspect(const Arguments& arguments) {
  std::vector<coreml::Package> packages;
  for (const std::string& path : coreml::packages_at(arguments.coreml.package))
    packages.push_back(coreml::open_package(path));
  const coreml::Package& first = packages.front();
  if (arguments.coreml.mil) {
    if (packages.size() > 1) refuse("--mil: the folder has several packages; give one of them");
    if (!first.stages.empty()) refuse("--mil: a pipeline has several programs");
    write_result(coreml::mil_text(first.program, &first.description));
    return kExitFine;
  }
  if (arguments.json) {
    Json reports = Json::array();
    for (const coreml::Package& package : packages) reports.push(coreml::package_report(package));
    Json all = Json::object();
    all.set("packages", std::move(reports));
    write_result((packages.size() == 1 ? coreml::package_report(first) : std::move(all)).text() + "\n");
    return kExitFine;
  }
  std::string text;
  for (const coreml::Package& package : packages)
    text += cat(text.empty() ? "" : "\n", package_listing(package, shown(package.path)));
  write_result(text);
  return kExitFine;
}

}  // namespace kvtide
