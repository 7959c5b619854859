#include "coreml/lint/lint.h"

#include <algorithm>

#include "base/out_of_memory.h"
#include "coreml/lint/rules.h"

namespace kvtide::coreml {
namespace {

void lint_functions(const Package& package, Findings& findings) {
  std::vector<LintedFunction> functions;
  functions.reserve(package.program.functions.size());
  for (const Function& function : package.program.functions) functions.emplace_back(function, package);
  for (LintedFunction& linted : functions) {
    for (const LintedFunction& other : functions) {
      if (&other == &linted) continue;
      linted.used_elsewhere.insert(other.of_outputs.states.begin(), other.of_outputs.states.end());
      for (const auto& [state, type] : other.states)
        if (other.address_follows(state)) linted.followed_elsewhere.insert(state);
    }
    check_states(linted, findings);
    check_writes(linted, findings);
    check_attention(linted, findings);
    check_inputs(linted, findings);
  }
  for (const Package& stage : package.stages) lint_functions(stage, findings);
}

}  // namespace

std::vector<Finding> lint(const Package& package, const std::string& tokenizer) try {
  Findings findings;
  lint_functions(package, findings);
  if (!tokenizer.empty()) check_special_ids(tokenizer, findings);
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return a.severity != b.severity ? a.severity > b.severity : a.line < b.line;
  });
  return findings;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide::coreml
