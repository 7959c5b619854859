// attention_rules.cpp: what attention looks at: all rows that the call's position allows, and no others.

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "coreml/lint/rules.h"
#include "coreml/program/data_type.h"
#include "coreml/program/mil_printer.h"

namespace kvtide::coreml {
namespace {

// An attention over a state: where its keys come from and what is added to its scores.
struct SeenRows {
  const Operation* operation = nullptr;
  std::string keys;
  std::vector<std::string> masks;
  std::int64_t rows = kUnknown;
  bool several = false;  // queries: their number differs from call to call
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

// Of the axis before the last; nullopt: not known, as of what coremltools calls a single number where it selects among some.
std::optional<std::int64_t> queries_of(const LintedFunction& linted, const std::string& name) {
  const ValueType* type = linted.indices.type(name);
  if (type == nullptr || type->any_rank || type->shape.size() < 2) return std::nullopt;
  return type->shape[type->shape.size() - 2];
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
      seen.several = queries_of(linted, bound_name(operation, "query")) == kUnknown;
      if (const std::string mask = bound_name(operation, "attn_mask"); !mask.empty())
        seen.masks.push_back(mask);
    } else if (operation.type == "softmax") {
      const std::string x = bound_name(operation, "x");
      const Operation* product = product_behind(linted, x);
      if (product == nullptr || product->type != "matmul") continue;
      seen.rows = last_extent(linted, x);
      seen.several = queries_of(linted, x) == kUnknown;
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

// The same rows for all tokens of a call: each sees those behind it, too.
bool hides_nothing_within_a_call(const LintedFunction& linted, const SeenRows& seen) {
  return seen.several && !seen.masks.empty() && linted.takes_several() &&
         std::all_of(seen.masks.begin(), seen.masks.end(),
                     [&](const std::string& mask) { return queries_of(linted, mask) == 1; });
}

// Its values come from the lengths of what is read in the call, so it knows how many tokens there are and not where they stand. The
// length of a mask that is given says where.
bool knows_no_position(const LintedFunction& linted, const std::string& mask) {
  const Sources& from = linted.sources.of(mask);
  return from.values.empty() && from.states.empty() && !from.inputs.empty() &&
         std::none_of(from.inputs.begin(), from.inputs.end(), names_a_mask);
}

void check_masks(const LintedFunction& linted, const SeenRows& seen, Findings& findings) {
  if (hides_nothing_within_a_call(linted, seen)) {
    findings.push_back(finding_at(linted, *seen.operation, Severity::error, "mask-missing",
                                  cat("the mask ", quoted(seen.masks.front()),
                                      " is the same for all tokens of a call: each sees later ones")));
    return;
  }
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
    if (!linted.sources.of(mask).empty() && !knows_no_position(linted, mask)) decided = true;
  }
  if (decided || seen.rows == kUnknown || seen.rows <= 1) return;
  const std::int64_t rows = rows_of_states(linted, linted.sources.of(seen.keys));
  if (seen.rows < rows || rows == 0) return;
  const bool constant = std::any_of(seen.masks.begin(), seen.masks.end(),
                                    [&](const std::string& mask) { return last_extent(linted, mask) != 1; });
  findings.push_back(
      finding_at(linted, *seen.operation, Severity::error, constant ? "position-baked-in" : "mask-missing",
                 constant ? cat("the mask of an attention over ", seen.rows,
                                " rows is the same in every call: what is seen does not follow the position")
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

// A row of a call that was counted when the model was traced: of the last token of three, for instance.
void check_traced_token(const LintedFunction& linted, const Operation& slice, Findings& findings) {
  const ValueType* x = linted.indices.type(bound_name(slice, "x"));
  const auto spans = linted.indices.spans(slice);
  if (x == nullptr || !spans || spans->size() != x->shape.size() || !linted.takes_several()) return;
  for (std::size_t axis = 0; axis < spans->size(); ++axis) {
    const AxisSpan& rows = (*spans)[axis];
    if (x->shape[axis] != kUnknown || rows.whole || !rows.begin.is_constant() || !rows.end.is_constant() ||
        rows.begin.offset <= 0 || rows.end.offset <= rows.begin.offset)
      continue;
    findings.push_back(
        finding_at(linted, slice, Severity::error, "length-baked-in",
                   cat("of a length that differs from call to call, ", rows.begin.offset, " to ",
                       rows.end.offset - 1, " are taken: the number of tokens was traced as a constant")));
    return;
  }
}

// As many rows as a traced call had, beside values of any number of tokens: positions, or a mask.
void check_traced_rows(const LintedFunction& linted, const Operation& joined, Findings& findings) {
  const ValueType *x = linted.indices.type(bound_name(joined, "x")),
                  *y = linted.indices.type(bound_name(joined, "y"));
  if (x == nullptr || y == nullptr || x->shape.size() < 2 || y->shape.size() < 2 || !linted.takes_several())
    return;
  const auto rows = [](const ValueType& type) { return type.shape[type.shape.size() - 2]; };
  if (x->shape.back() <= 1 || x->shape.back() != y->shape.back() ||
      std::min(rows(*x), rows(*y)) != kUnknown || std::max(rows(*x), rows(*y)) <= 1)
    return;
  findings.push_back(finding_at(linted, joined, Severity::error, "length-baked-in",
                                cat("values of any number of tokens meet ", std::max(rows(*x), rows(*y)),
                                    " rows: the number of tokens was traced as a constant")));
}

// A shape without a length in it, for values that have one.
void check_traced_shape(const LintedFunction& linted, const Operation& reshape, Findings& findings) {
  const std::string x = bound_name(reshape, "x");
  const ValueType* from = linted.indices.type(x);
  const Terms* to = linted.indices.of(reshape, "shape");
  if (from == nullptr || from->any_rank || to == nullptr || to->empty() || !linted.takes_several()) return;
  const bool open = std::find(from->shape.begin(), from->shape.end(), kUnknown) != from->shape.end();
  const bool fixed = std::all_of(to->begin(), to->end(),
                                 [](const Term& size) { return size.is_constant() && size.offset > 0; });
  // How long a slice is may be known although its type does not say so.
  const Operation* maker = linted.indices.producer(x);
  while (maker && is_passed(maker->type) && maker->type != "reshape")
    maker = linted.indices.producer(bound_name(*maker, "x"));
  if (!open || !fixed || maker == nullptr || maker->type == "slice_by_index" || maker->type == "gather")
    return;
  findings.push_back(finding_at(
      linted, reshape, Severity::error, "length-baked-in",
      cat("values whose number differs from call to call become ",
          mil_type_text(reshape.outputs.front().type), ": the number of tokens was traced as a constant")));
}

}  // namespace

void check_attention(const LintedFunction& linted, Findings& findings) {
  for (const SeenRows& seen : attentions(linted)) check_masks(linted, seen, findings);
  check_read_length(linted, findings);
  for (const Operation& operation : linted.function.block.operations) {
    if (operation.type == "slice_by_index") check_traced_token(linted, operation, findings);
    if (is_joined(operation.type)) check_traced_rows(linted, operation, findings);
    if (operation.type == "reshape") check_traced_shape(linted, operation, findings);
  }
}

}  // namespace kvtide::coreml
