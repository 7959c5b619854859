// input_rules.cpp: every input is used, masks can say something, and a memory does not travel.

#include <algorithm>

#include "base/text.h"
#include "coreml/lint/rules.h"
#include "coreml/program/data_type.h"

namespace kvtide::coreml {
namespace {

Sources of_everything(const LintedFunction& linted) {
  Sources used = linted.of_outputs;
  for (const StateWrite& write : linted.sources.writes()) used.add(linted.sources.of(write.data));
  return used;
}

// Whether some state is written where another input says: then one that is not used is not the position.
bool follows_an_input(const LintedFunction& linted) {
  return !linted.states.empty() &&
         std::any_of(linted.states.begin(), linted.states.end(),
                     [&](const auto& state) { return linted.address_follows(state.first); });
}

void check_used(const LintedFunction& linted, Findings& findings) {
  const Sources used = of_everything(linted);
  const bool spare = follows_an_input(linted);
  for (const NamedType& input : linted.function.inputs) {
    if (input.type.kind == ValueType::Kind::state || used.inputs.contains(input.name)) continue;
    findings.push_back(finding_of(linted, spare ? Severity::hint : Severity::warning, "input-unused",
                                  cat("the input ", quoted(input.name), " reaches no output and no state",
                                      spare ? "" : ": what it should have said was traced as a constant")));
  }
}

// Of a description: a mask that can only ever be as long as the one it was traced with.
void check_mask_inputs(const LintedFunction& linted, Findings& findings) {
  const bool remembers = std::any_of(linted.states.begin(), linted.states.end(), [&](const auto& state) {
    return state.second.shape.size() >= 3 && state.second.shape[linted.row_axis(state.first)] > 1;
  });
  if (!remembers) return;
  for (const NamedType& input : linted.function.inputs) {
    if (input.type.kind != ValueType::Kind::tensor || !names_a_mask(input.name)) continue;
    if (input.type.shape.size() != 2 || input.type.shape.back() != 1)
      continue;  // those of attention: by what they are added to
    findings.push_back(finding_of(linted, Severity::error, "mask-of-length-1",
                                  cat("the input ", quoted(input.name),
                                      " has the length 1 in every call, and the states hold more rows: at "
                                      "decode it says nothing of the past")));
  }
}

// The input whose contents, with something added, are a value; empty: it is made otherwise.
std::string grown_input(const LintedFunction& linted, std::string name) {
  bool grown = false;
  for (int depth = 0; depth < 16; ++depth) {
    const Operation* maker = linted.indices.producer(name);
    if (maker == nullptr) {
      const ValueType* type = linted.indices.type(name);
      return grown && type && type->kind == ValueType::Kind::tensor && type->shape.size() >= 3 ? name : "";
    }
    if (maker->type == "concat") {
      const Argument* values = maker->input("values");
      if (values == nullptr || values->bindings.empty()) return "";
      name = values->bindings.front().name;
      grown = true;
    } else if (maker->type == "slice_update" || maker->type.substr(0, 7) == "scatter") {
      name = bound_name(*maker, maker->type == "slice_update" ? "x" : "data");
      grown = true;
    } else if (maker->type == "identity" || maker->type == "cast") {
      name = bound_name(*maker, "x");
    } else {
      return "";
    }
  }
  return "";
}

void check_travelling(const LintedFunction& linted, Findings& findings) {
  for (const std::string& output : linted.function.block.outputs) {
    const std::string input = grown_input(linted, output);
    if (input.empty()) continue;
    findings.push_back(finding_of(
        linted, Severity::warning, "cache-as-input",
        cat("the input ", quoted(input), " comes back as the output ", quoted(output),
            " with rows added: the whole cache is copied in every call; a state would stay where it is")));
  }
}

}  // namespace

void check_inputs(const LintedFunction& linted, Findings& findings) {
  check_used(linted, findings);
  check_mask_inputs(linted, findings);
  check_travelling(linted, findings);
}

}  // namespace kvtide::coreml
