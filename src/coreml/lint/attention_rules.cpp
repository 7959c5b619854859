// attention_rules.cpp: what attention looks at: all rows that the call's position allows, and no others.

#include <algorithm>

#include "base/text.h"
#include "coreml/lint/rules.h"
#include "coreml/program/data_type.h"

namespace kvtide::coreml {
namespace {

// An attention over a state: where its keys come from and what is added to its scores.
struct SeenRows {
  const Operation* operation = nullptr;
  std::string keys;
  std::vector<std::string> masks;
  std::int64_t rows = kUnknown;
};

bool is_passed(std::string_view type) {
  for (const char* known :
       {"cast", "reshape", "expand_dims", "squeeze", "transpose", "tanh", "clip", "identity"})
    if (type == known) return true;
  return false;
}

bool is_joined(std::string_view type) {
  for (const char* known : {"add", "sub", "mul", "real_div", "maximum", "minimum"})
    if (type == known) return true;
  return false;
}

// The product of queries and keys behind a value; nullptr: it is made otherwise.
const Operation* product_behind(const LintedFunction& linted, const std::string& name, int depth = 0) {
  const Operation* maker = linted.indices.producer(name);
  if (maker == nullptr || depth > 12) return nullptr;
  if (maker->type == "matmul" || maker->type == "einsum") return maker;
  if (is_passed(maker->type)) return product_behind(linted, bound_name(*maker, "x"), depth + 1);
  if (is_joined(maker->type)) {
    if (const Operation* found = product_behind(linted, bound_name(*maker, "x"), depth + 1)) return found;
    return product_behind(linted, bound_name(*maker, "y"), depth + 1);
  }
  if (maker->type == "select") {
    if (const Operation* found = product_behind(linted, bound_name(*maker, "a"), depth + 1)) return found;
    return product_behind(linted, bound_name(*maker, "b"), depth + 1);
  }
  return nullptr;
}

// What is added to scores or selects among them, on the way from the softmax to the product.
void collect_masks(const LintedFunction& linted, const std::string& name, std::vector<std::string>& masks) {
  const Operation* maker = linted.indices.producer(name);
  if (maker == nullptr) return;
  if (is_passed(maker->type)) return collect_masks(linted, bound_name(*maker, "x"), masks);
  if (maker->type == "select") {
    masks.push_back(bound_name(*maker, "cond"));
    const bool first = product_behind(linted, bound_name(*maker, "a")) != nullptr;
    return collect_masks(linted, bound_name(*maker, first ? "a" : "b"), masks);
  }
  if (!is_joined(maker->type)) return;
  const std::string x = bound_name(*maker, "x"), y = bound_name(*maker, "y");
  const bool first = product_behind(linted, x) != nullptr;
  const bool scales = maker->type == "mul" || maker->type == "real_div";
  if (!scales) masks.push_back(first ? y : x);
  collect_masks(linted, first ? x : y, masks);
}

std::int64_t last_extent(const LintedFunction& linted, const std::string& name) {
  const ValueType* type = linted.indices.type(name);
  return type == nullptr || type->any_rank || type->shape.empty() ? kUnknown : type->shape.back();
}

std::vector<SeenRows> attentions(const LintedFunction& linted) {
  std::vector<SeenRows> found;
  for (const Operation& operation : linted.function.block.operations) {
    SeenRows seen;
    seen.operation = &operation;
    if (operation.type == "scaled_dot_product_attention") {
      seen.keys = bound_name(operation, "key");
      const ValueType* keys = linted.indices.type(seen.keys);
      if (keys && keys->shape.size() >= 2) seen.rows = keys->shape[keys->shape.size() - 2];
      if (const std::string mask = bound_name(operation, "attn_mask"); !mask.empty())
        seen.masks.push_back(mask);
    } else if (operation.type == "softmax") {
      const std::string x = bound_name(operation, "x");
      const Operation* product = product_behind(linted, x);
      if (product == nullptr || product->type != "matmul") continue;
      seen.rows = last_extent(linted, x);
      seen.keys = bound_name(*product, "y");
      if (linted.sources.of(seen.keys).states.empty()) seen.keys = bound_name(*product, "x");
      collect_masks(linted, x, seen.masks);
    } else {
      continue;
    }
    if (!linted.sources.of(seen.keys).states.empty()) found.push_back(std::move(seen));
  }
  return found;
}

std::int64_t rows_of_states(const LintedFunction& linted, const Sources& sources) {
  std::int64_t rows = 0;
  for (const std::string& state : sources.states)
    if (const auto found = linted.states.find(state);
        found != linted.states.end() && found->second.shape.size() >= 3)
      rows = std::max(rows, found->second.shape[linted.row_axis(state)]);
  return rows;
}

void check_masks(const LintedFunction& linted, const SeenRows& seen, Findings& findings) {
  bool decided = false;
  for (const std::string& mask : seen.masks) {
    const std::int64_t extent = last_extent(linted, mask);
    const ValueType* type = linted.indices.type(mask);
    const bool one = type && !type->shape.empty() && extent == 1;
    if (one && seen.rows != 1 && !linted.sources.of(mask).empty()) {
      findings.push_back(
          finding_at(linted, *seen.operation, Severity::error, "mask-of-length-1",
                     cat("the mask ", quoted(mask),
                         " has one element for all rows: attention sees all of them or none")));
      return;
    }
    if (extent == 1) continue;
    if (!linted.sources.of(mask).empty()) decided = true;
  }
  if (decided || seen.rows == kUnknown || seen.rows <= 1) return;
  const std::int64_t rows = rows_of_states(linted, linted.sources.of(seen.keys));
  if (seen.rows < rows || rows == 0) return;
  const bool constant = std::any_of(seen.masks.begin(), seen.masks.end(),
                                    [&](const std::string& mask) { return last_extent(linted, mask) > 1; });
  findings.push_back(
      finding_at(linted, *seen.operation, Severity::error, constant ? "position-baked-in" : "mask-missing",
                 constant ? cat("the mask of an attention over ", seen.rows,
                                " rows is a constant: what is seen does not follow the position")
                          : cat("attention looks at all ", seen.rows,
                                " rows of a state without a mask, also at those that nobody wrote")));
}

// Reads of as many rows as there were when the model was traced.
void check_read_length(const LintedFunction& linted, Findings& findings) {
  for (const Operation& operation : linted.function.block.operations) {
    if (operation.type != "slice_by_index") continue;
    const std::string state = linted.sources.state_of(bound_name(operation, "x"));
    if (state.empty() || !linted.states.contains(state) || !linted.address_follows(state)) continue;
    const auto spans = linted.indices.spans(operation);
    const std::size_t axis = linted.row_axis(state);
    if (!spans || axis >= spans->size()) continue;
    const AxisSpan& rows = (*spans)[axis];
    if (rows.whole || !rows.begin.is_constant() || !rows.end.is_constant()) continue;
    findings.push_back(finding_at(
        linted, operation, Severity::error, "length-baked-in",
        cat("rows ", rows.begin.offset, " to ", rows.end.offset - 1, " of the state ", quoted(state),
            " are read in every call, and what is written goes beyond: the length was traced as a "
            "constant")));
  }
}

}  // namespace

void check_attention(const LintedFunction& linted, Findings& findings) {
  for (const SeenRows& seen : attentions(linted)) check_masks(linted, seen, findings);
  check_read_length(linted, findings);
}

}  // namespace kvtide::coreml
