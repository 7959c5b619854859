// write_rules.cpp: the rows that a call writes are those of its position, as many as it has tokens.

#include <algorithm>

#include "base/text.h"
#include "coreml/lint/rules.h"
#include "coreml/program/data_type.h"

namespace kvtide::coreml {
namespace {

constexpr std::int64_t kExactHalfRows = 2048;

bool all_constant(const std::vector<AxisSpan>& spans) {
  return std::all_of(spans.begin(), spans.end(),
                     [](const AxisSpan& span) { return span.begin.is_constant() && span.end.is_constant(); });
}

// The address of the other axes, as text: writes of one layer belong together.
std::string layer_of(const std::vector<AxisSpan>& spans, std::size_t row_axis) {
  std::string layer;
  for (std::size_t axis = 0; axis < spans.size(); ++axis)
    if (axis != row_axis) layer += cat(spans[axis].begin.base, spans[axis].begin.offset, ",");
  return layer;
}

// A window that moves on writes every row at places that never change: what is kept, and behind it what is new.
bool covers_all_rows(const LintedFunction& linted, const std::string& state, const std::string& layer,
                     std::size_t row_axis) {
  std::vector<std::pair<std::int64_t, std::int64_t>> written;
  for (const Operation* update : linted.updates) {
    const auto spans = linted.indices.spans(*update);
    if (spans && linted.sources.state_of(update->outputs.front().name) == state && all_constant(*spans) &&
        layer_of(*spans, row_axis) == layer)
      written.emplace_back((*spans)[row_axis].begin.offset, (*spans)[row_axis].end.offset);
  }
  std::sort(written.begin(), written.end());
  std::int64_t covered = 0;
  for (const auto& [begin, end] : written)
    if (begin <= covered) covered = std::max(covered, end);
  return covered >= linted.states.at(state).shape[row_axis];
}

void check_constant_address(const LintedFunction& linted, const Operation& update, const std::string& state,
                            const std::vector<AxisSpan>& spans, Findings& findings) {
  const std::size_t axis = linted.row_axis(state);
  const AxisSpan& rows = spans[axis];
  if (!all_constant(spans) || rows.whole || covers_all_rows(linted, state, layer_of(spans, axis), axis))
    return;
  if (linted.followed_elsewhere.contains(state))
    return;  // a first call of fixed length, beside one that goes on
  findings.push_back(
      finding_at(linted, update, Severity::error, "position-baked-in",
                 cat("every call writes rows ", rows.begin.offset, " to ", rows.end.offset - 1,
                     " of the state ", quoted(state), ": the position was traced as a constant")));
}

// How many rows the update brings along `axis`; kUnknown: differs from call to call.
std::int64_t rows_of_update(const LintedFunction& linted, const Operation& update,
                            const std::vector<AxisSpan>& spans, std::size_t axis) {
  const ValueType* type = linted.indices.type(bound_name(update, "update"));
  if (type == nullptr || type->any_rank) return 0;
  std::size_t at = axis;
  if (type->shape.size() != spans.size())  // squeezed axes are left out
    for (std::size_t i = 0; i < axis; ++i)
      if (spans[i].squeezed) --at;
  return at < type->shape.size() ? type->shape[at] : 0;
}

// A write that begins at the same row in every call, as long as the call: the end alone follows. Rows that move on within their
// state begin there, too.
void check_constant_begin(const LintedFunction& linted, const Operation& update, const std::string& state,
                          const std::vector<AxisSpan>& spans, Findings& findings) {
  if (linted.followed_elsewhere.contains(state) || linted.address_follows(state) ||
      linted.sources.of(bound_name(update, "update")).states.contains(state))
    return;
  for (const AxisSpan& rows : spans) {
    if (rows.whole || !rows.begin.is_constant() || rows.end.is_constant()) continue;
    findings.push_back(finding_at(linted, update, Severity::error, "position-baked-in",
                                  cat("every call writes the state ", quoted(state), " from row ",
                                      rows.begin.offset, " on: the position was traced as a constant")));
    return;
  }
}

void check_moving_address(const LintedFunction& linted, const Operation& update, const std::string& state,
                          const std::vector<AxisSpan>& spans, Findings& findings) {
  for (std::size_t axis = 0; axis < spans.size(); ++axis) {
    const Term &begin = spans[axis].begin, &end = spans[axis].end;
    if (begin.is_constant()) continue;
    const std::int64_t rows = rows_of_update(linted, update, spans, axis);
    if (rows == 1 && linted.takes_several())
      findings.push_back(finding_at(
          linted, update, Severity::error, "write-extent",
          cat("one row of the state ", quoted(state), " is written whatever the number of tokens")));
    else if (rows == kUnknown && begin.base == end.base)
      findings.push_back(finding_at(
          linted, update, Severity::error, "write-extent",
          cat("the state ", quoted(state), " is written at ", end.offset - begin.offset,
              " row(s) whatever the number of tokens: the address does not follow a call of more")));
    else if (begin.last && rows != 1)
      findings.push_back(finding_at(
          linted, update, Severity::error, "write-address",
          cat("the state ", quoted(state), " is written from the position of the call's last token (",
              begin.base, ") on: right for one token, and behind it for more")));
    if (begin.through_half && linted.states.at(state).shape[axis] > kExactHalfRows)
      findings.push_back(finding_at(
          linted, update, Severity::warning, "counter-inexact",
          cat("the address of the write of ", quoted(state), " was a number in f16, which is exact up to ",
              kExactHalfRows, ", and the state has ", linted.states.at(state).shape[axis], " rows")));
  }
}

void check_scatter(const LintedFunction& linted, const Operation& scatter, const std::string& state,
                   Findings& findings) {
  if (!linted.sources.of(bound_name(scatter, "indices")).empty()) return;
  findings.push_back(finding_at(linted, scatter, Severity::error, "position-baked-in",
                                cat("the rows that are written to the state ", quoted(state),
                                    " are constants: the position was traced as a constant")));
}

bool is_elementwise(std::string_view type) {
  for (const char* known : {"add", "sub", "mul", "select", "identity", "cast", "maximum", "minimum"})
    if (type == known) return true;
  return false;
}

bool holds_rows(const LintedFunction& linted, const std::string& name, std::int64_t rows) {
  const ValueType* type = linted.indices.type(name);
  return type && std::find(type->shape.begin(), type->shape.end(), rows) != type->shape.end();
}

// state = old * keep + new: what keeps and what selects has to come from the call.
void check_masked_write(const LintedFunction& linted, const StateWrite& write, Findings& findings) {
  if (!linted.states.contains(write.state)) return;
  const std::int64_t rows = linted.states.at(write.state).shape.empty()
                                ? 0
                                : linted.states.at(write.state).shape[linted.row_axis(write.state)];
  if (rows <= 1) return;
  std::set<std::string> seen;
  std::vector<std::string> open = {write.data};
  while (!open.empty()) {
    const std::string name = open.back();
    open.pop_back();
    const Operation* maker = linted.indices.producer(name);
    if (!seen.insert(name).second || maker == nullptr || !is_elementwise(maker->type)) continue;
    for (const Argument& argument : maker->inputs) {
      const std::string operand = bound_name(*maker, argument.name);
      if (operand.empty()) continue;
      const Sources& from = linted.sources.of(operand);
      const bool decides = maker->type == "mul" || (maker->type == "select" && argument.name == "cond");
      if (decides && from.empty() && holds_rows(linted, operand, rows)) {
        findings.push_back(finding_at(linted, *maker, Severity::error, "position-baked-in",
                                      cat("the mask ", quoted(operand), " that says which rows of the state ",
                                          quoted(write.state), " are written is a constant")));
        return;
      }
      if (from.states.contains(write.state)) open.push_back(operand);
    }
  }
}

}  // namespace

void check_writes(const LintedFunction& linted, Findings& findings) {
  for (const Operation* update : linted.updates) {
    const std::string state = linted.sources.state_of(update->outputs.front().name);
    const auto spans = linted.indices.spans(*update);
    if (!linted.states.contains(state) || !spans || spans->size() < 2) continue;
    check_constant_address(linted, *update, state, *spans, findings);
    check_constant_begin(linted, *update, state, *spans, findings);
    check_moving_address(linted, *update, state, *spans, findings);
  }
  for (const Operation& operation : linted.function.block.operations)
    if (operation.type.substr(0, 7) == "scatter" && operation.outputs.size() == 1)
      if (const std::string state = linted.sources.state_of(operation.outputs.front().name); !state.empty())
        check_scatter(linted, operation, state, findings);
  for (const StateWrite& write : linted.sources.writes()) check_masked_write(linted, write, findings);
}

}  // namespace kvtide::coreml
