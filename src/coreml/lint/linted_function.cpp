#include <algorithm>

#include "coreml/lint/rules.h"

namespace kvtide::coreml {

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::hint:
      return "hint";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "";
}

LintedFunction::LintedFunction(const Function& linted, const Package& whole)
    : function(linted),
      description(whole.description.function(linted.name)),
      package(whole),
      indices(linted),
      sources(linted, indices) {
  for (const NamedType& input : function.inputs)
    if (input.type.kind == ValueType::Kind::state) states[input.name] = input.type;
  for (const std::string& output : function.block.outputs) of_outputs.add(sources.of(output));
  for (const Operation& operation : function.block.operations)
    if (operation.type == "slice_update" && !sources.state_of(operation.outputs.front().name).empty())
      updates.push_back(&operation);
}

std::size_t LintedFunction::row_axis(const std::string& state) const {
  for (const Operation* update : updates) {
    if (sources.state_of(update->outputs.front().name) != state) continue;
    const auto spans = indices.spans(*update);
    for (std::size_t axis = 0; spans && axis < spans->size(); ++axis)
      if (!(*spans)[axis].begin.is_constant()) return axis;
  }
  const std::size_t rank = states.at(state).shape.size();
  return rank < 2 ? 0 : rank - 2;
}

bool LintedFunction::address_follows(const std::string& state) const {
  for (const Operation* update : updates) {
    if (sources.state_of(update->outputs.front().name) != state) continue;
    const auto spans = indices.spans(*update);
    if (!spans) return true;
    for (const AxisSpan& span : *spans)
      if (!span.begin.is_constant()) return true;
  }
  return false;
}

bool LintedFunction::takes_several() const {
  return std::any_of(function.inputs.begin(), function.inputs.end(), [](const NamedType& input) {
    const Shape& shape = input.type.shape;  // a mask is as long as the text
    return input.type.kind == ValueType::Kind::tensor && !names_a_mask(input.name) &&
           std::find(shape.begin(), shape.end(), kUnknown) != shape.end();
  });
}

bool names_a_mask(const std::string& name) {
  std::string lower = name;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower.find("mask") != lower.npos;
}

Finding finding_of(const LintedFunction& linted, Severity severity, std::string rule, std::string message) {
  return {severity, std::move(rule), linted.function.name, "", 0, std::move(message)};
}

Finding finding_at(const LintedFunction& linted, const Operation& operation, Severity severity,
                   std::string rule, std::string message) {
  Finding finding = finding_of(linted, severity, std::move(rule), std::move(message));
  finding.operation = operation_name(operation);
  finding.line = operation.line;
  return finding;
}

}  // namespace kvtide::coreml
