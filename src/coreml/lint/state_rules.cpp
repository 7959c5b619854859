// state_rules.cpp: a state is written, its old contents matter, and it can count.

#include <algorithm>

#include "base/text.h"
#include "coreml/lint/rules.h"
#include "coreml/program/data_type.h"

namespace kvtide::coreml {
namespace {

constexpr std::int64_t kExactHalves = 2048;  // whole numbers that f16 counts without a gap
constexpr std::int64_t kAneMultiple = 32;

bool is_written(const Function& function, const std::string& state) {
  for (const Operation& operation : function.block.operations)
    if (operation.type == "write_state" && bound_name(operation, "input") == state) return true;
  return false;
}

// Every write gives the state what a read of it gave.
bool stays_as_it_is(const LintedFunction& linted, const std::string& state) {
  bool written = false;
  for (const StateWrite& write : linted.sources.writes()) {
    if (write.state != state) continue;
    const Operation* maker = linted.indices.producer(write.data);
    while (maker && maker->type == "identity") maker = linted.indices.producer(bound_name(*maker, "x"));
    if (maker == nullptr || maker->type != "read_state" || bound_name(*maker, "input") != state) return false;
    written = true;
  }
  return written;
}

const Operation* first_read(const LintedFunction& linted, const std::string& state) {
  for (const Operation& operation : linted.function.block.operations)
    if (operation.type == "read_state" && bound_name(operation, "input") == state) return &operation;
  return nullptr;
}

// An input from which no output and no state is made.
std::string unused_input(const LintedFunction& linted) {
  Sources used = linted.of_outputs;
  for (const StateWrite& write : linted.sources.writes()) used.add(linted.sources.of(write.data));
  for (const NamedType& input : linted.function.inputs)
    if (input.type.kind != ValueType::Kind::state && !used.inputs.contains(input.name)) return input.name;
  return "";
}

void check_written(const LintedFunction& linted, const std::string& state, Findings& findings) {
  const bool stays = stays_as_it_is(linted, state);
  if (is_written(linted.function, state) && !stays) return;
  for (const Function& other : linted.package.program.functions)
    if (&other != &linted.function && is_written(other, state))
      return;  // prefill writes what another function reads
  const Operation* read = first_read(linted, state);
  const std::string input = unused_input(linted);
  if (read && !input.empty() && !stays) {
    findings.push_back(finding_at(
        linted, *read, Severity::error, "index-put-lost",
        cat("the state ", quoted(state), " is read and never written, and the input ", quoted(input),
            " reaches nothing: an assignment by a tensor of indices (index_put) was lost when the model was "
            "converted; assign a slice instead")));
    return;
  }
  const std::string why = cat("the state ", quoted(state),
                              stays ? " is written with what it held: it stays as it was made"
                                    : " is never written: every call starts from zeros");
  findings.push_back(read ? finding_at(linted, *read, Severity::error, "state-never-written", why)
                          : finding_of(linted, Severity::error, "state-never-written", why));
}

void check_old_contents(const LintedFunction& linted, const std::string& state, Findings& findings) {
  if (!is_written(linted.function, state) || linted.of_outputs.states.contains(state) ||
      linted.used_elsewhere.contains(state))
    return;
  // What is written may matter to another state that reaches an output: a counter that is an address.
  for (const StateWrite& write : linted.sources.writes())
    if (write.state != state && linted.sources.of(write.data).states.contains(state) &&
        linted.of_outputs.states.contains(write.state))
      return;
  const auto found = std::find_if(linted.sources.writes().begin(), linted.sources.writes().end(),
                                  [&](const StateWrite& write) { return write.state == state; });
  findings.push_back(
      finding_at(linted, *found->operation, Severity::error, "old-contents-unused",
                 cat("the state ", quoted(state),
                     " is written, but nothing of what it held before reaches an output: the position was "
                     "probably traced as a constant, and every call starts anew")));
}

std::int64_t longest_state(const LintedFunction& linted) {
  std::int64_t rows = 0;
  for (const auto& [name, type] : linted.states)
    if (type.shape.size() >= 3) rows = std::max(rows, type.shape[linted.row_axis(name)]);
  return rows;
}

void check_counter(const LintedFunction& linted, const std::string& state, const ValueType& type,
                   Findings& findings) {
  if (type.dtype != DataType::fp16 || elements_of(type.shape).value_or(0) != 1) return;
  const std::int64_t rows = longest_state(linted);
  if (rows <= kExactHalves) return;
  for (const StateWrite& write : linted.sources.writes())
    if (write.state == state && linted.sources.of(write.data).states.contains(state)) {
      findings.push_back(finding_at(linted, *write.operation, Severity::warning, "counter-inexact",
                                    cat("the state ", quoted(state), " counts in f16, which is exact up to ",
                                        kExactHalves, ", and the cache has ", rows, " rows")));
      return;
    }
}

void check_ane_shape(const LintedFunction& linted, const std::string& state, const ValueType& type,
                     Findings& findings) {
  if (type.shape.size() < 3) return;
  for (const std::size_t axis : {linted.row_axis(state), type.shape.size() - 1})
    if (type.shape[axis] % kAneMultiple != 0) {
      findings.push_back(
          finding_of(linted, Severity::hint, "state-shape",
                     cat("axis ", axis, " of the state ", quoted(state), " has ", type.shape[axis],
                         " elements; the Neural Engine is said to want multiples of ", kAneMultiple)));
      return;
    }
}

}  // namespace

void check_states(const LintedFunction& linted, Findings& findings) {
  for (const auto& [name, type] : linted.states) {
    check_written(linted, name, findings);
    check_old_contents(linted, name, findings);
    check_counter(linted, name, type, findings);
    check_ane_shape(linted, name, type, findings);
  }
}

}  // namespace kvtide::coreml
