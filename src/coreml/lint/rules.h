// rules.h: the rules of lint, by what they look at. Each adds what it finds.
//
// Thread rules: pure functions of a function that was looked at.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "coreml/lint/finding.h"
#include "coreml/lint/sources.h"
#include "coreml/program/package.h"

namespace kvtide::coreml {

// A function with what is known of it.
struct LintedFunction {
  const Function& function;
  const FunctionDescription* description;  // nullptr: the package says nothing of it
  const Package& package;
  Indices indices;
  SourceMap sources;
  Sources of_outputs;                       // together
  std::map<std::string, ValueType> states;  // by name
  std::vector<const Operation*> updates;    // slice_update of a state's contents
  // Of the package's other functions: states whose old contents they use, and those that they write where the call says.
  std::set<std::string> used_elsewhere, followed_elsewhere;

  LintedFunction(const Function& function, const Package& package);

  // The axis of rows of a state: the one whose address follows the call, or the last but one.
  std::size_t row_axis(const std::string& state) const;
  bool address_follows(const std::string& state) const;  // some write of it does
  bool takes_several() const;                            // calls of different numbers of tokens
};

using Findings = std::vector<Finding>;

bool names_a_mask(const std::string& name);  // "attention_mask", "causalMask"

void check_states(const LintedFunction& linted, Findings& findings);
void check_writes(const LintedFunction& linted, Findings& findings);
void check_attention(const LintedFunction& linted, Findings& findings);
void check_inputs(const LintedFunction& linted, Findings& findings);
// Special ids of config.json against tokenizer.json, both of `folder`; nothing where they are not there.
void check_special_ids(const std::string& folder, Findings& findings);

Finding finding_at(const LintedFunction& linted, const Operation& operation, Severity severity,
                   std::string rule, std::string message);
Finding finding_of(const LintedFunction& linted, Severity severity, std::string rule, std::string message);

}  // namespace kvtide::coreml
