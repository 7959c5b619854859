#include "coreml/lint/indices.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "coreml/program/data_type.h"

namespace kvtide::coreml {
namespace {

constexpr std::size_t kMostTerms = 64;  // of one tensor: addresses and shapes are short

template <class T>
void read_terms(const Value& value, Terms& out) {
  for (std::size_t i = 0; i + sizeof(T) <= value.bytes.size(); i += sizeof(T)) {
    T number;
    std::memcpy(&number, value.bytes.data() + i, sizeof number);
    out.push_back({"", static_cast<std::int64_t>(number)});
  }
}

Terms constant_terms(const Value& value) {
  Terms terms;
  if (elements_of(value.type.shape).value_or(kMostTerms + 1) > kMostTerms) return terms;
  switch (value.type.dtype) {
    case DataType::boolean:
      read_terms<std::uint8_t>(value, terms);
      break;
    case DataType::int8:
      read_terms<std::int8_t>(value, terms);
      break;
    case DataType::uint8:
      read_terms<std::uint8_t>(value, terms);
      break;
    case DataType::int16:
      read_terms<std::int16_t>(value, terms);
      break;
    case DataType::uint16:
      read_terms<std::uint16_t>(value, terms);
      break;
    case DataType::int32:
      read_terms<std::int32_t>(value, terms);
      break;
    default:
      break;
  }
  return terms;
}

std::string term_text(const Term& term) {
  if (term.is_constant()) return std::to_string(term.offset);
  return term.offset == 0 ? term.base : cat("(", term.base, " + ", term.offset, ")");
}

std::optional<std::int64_t> folded(std::string_view type, std::int64_t x, std::int64_t y) {
  if (type == "add") return x + y;
  if (type == "sub") return x - y;
  if (type == "mul") return x * y;
  if (type == "maximum") return std::max(x, y);
  if (type == "minimum") return std::min(x, y);
  if ((type == "floor_div" || type == "real_div") && y != 0) return x / y;
  if (type == "mod" && y != 0) return x % y;
  if (type == "equal") return x == y;
  if (type == "not_equal") return x != y;
  if (type == "less") return x < y;
  if (type == "less_equal") return x <= y;
  if (type == "greater") return x > y;
  if (type == "greater_equal") return x >= y;
  return std::nullopt;
}

bool is_arithmetic(std::string_view type) { return folded(type, 1, 1).has_value(); }

bool keeps_elements(std::string_view type) {
  for (const char* known : {"cast", "identity", "expand_dims", "squeeze", "reshape"})
    if (type == known) return true;
  return false;
}

Term combined(std::string_view type, const Term& x, const Term& y) {
  Term out;
  out.through_half = x.through_half || y.through_half;
  if (x.is_constant() && y.is_constant()) {
    out.offset = folded(type, x.offset, y.offset).value_or(0);
    return out;
  }
  if (type == "add" && (x.is_constant() || y.is_constant())) {
    const Term& moved = x.is_constant() ? y : x;
    out.base = moved.base;
    out.offset = x.offset + y.offset;
    out.last = moved.last;
    return out;
  }
  if (type == "sub" && y.is_constant()) {
    out.base = x.base;
    out.offset = x.offset - y.offset;
    out.last = x.last;
    return out;
  }
  if (type == "sub" && x.base == y.base) return {"", x.offset - y.offset, out.through_half};
  if (type == "add") {  // either order is one sum; what is known stays outside
    Term a = x, b = y;
    out.offset = a.offset + b.offset;
    a.offset = b.offset = 0;
    if (b.base < a.base) std::swap(a, b);
    out.base = cat("(", a.base, " + ", b.base, ")");
    return out;
  }
  out.base = cat("(", type, " ", term_text(x), " ", term_text(y), ")");
  return out;
}

bool flag_at(const Terms* mask, std::size_t axis) {
  return mask != nullptr && axis < mask->size() && (*mask)[axis].offset != 0;
}

}  // namespace

std::vector<std::string> names_read(const Operation& operation) {
  std::vector<std::string> names;
  for (const Argument& argument : operation.inputs)
    for (const Binding& binding : argument.bindings)
      if (!binding.value) names.push_back(binding.name);
  for (const Block& block : operation.blocks) {
    for (const Operation& inner : block.operations)
      for (std::string& name : names_read(inner)) names.push_back(std::move(name));
    names.insert(names.end(), block.outputs.begin(), block.outputs.end());
  }
  return names;
}

std::string bound_name(const Operation& operation, std::string_view parameter) {
  const Argument* argument = operation.input(parameter);
  return argument && argument->bindings.size() == 1 && !argument->bindings[0].value
             ? argument->bindings[0].name
             : "";
}

std::string operation_name(const Operation& operation) {
  if (!operation.outputs.empty()) return operation.outputs.front().name;
  const Value* name = operation.attribute("name");
  return name && !name->strings.empty() ? name->strings.front() : operation.type;
}

Indices::Indices(const Function& function) {
  for (const NamedType& input : function.inputs) {
    types_[input.name] = input.type;
    if (input.type.kind == ValueType::Kind::tensor) terms_[input.name] = unknown(input.name, input.type);
  }
  for (const Operation& operation : function.block.operations) {
    for (const Argument& argument : operation.inputs)
      for (const Binding& binding : argument.bindings)
        if (binding.value) in_place_[binding.value.get()] = constant_terms(*binding.value);
    for (const NamedType& output : operation.outputs) {
      types_[output.name] = output.type;
      producers_[output.name] = &operation;
    }
    if (operation.type == "write_state") {
      written_[bound_name(operation, "input")] = bound_name(operation, "data");
      continue;
    }
    if (operation.outputs.size() == 1) terms_[operation.outputs.front().name] = evaluate(operation);
  }
}

const Terms& Indices::of(const std::string& name) const {
  static const Terms none;
  const auto found = terms_.find(name);
  return found == terms_.end() ? none : found->second;
}

const Terms* Indices::of(const Operation& operation, std::string_view parameter) const {
  const Argument* argument = operation.input(parameter);
  if (argument && argument->bindings.size() == 1 && argument->bindings[0].value) {
    const Terms& terms = in_place_.at(argument->bindings[0].value.get());
    return terms.empty() ? nullptr : &terms;
  }
  const std::string name = bound_name(operation, parameter);
  const auto found = terms_.find(name);
  return name.empty() || found == terms_.end() || found->second.empty() ? nullptr : &found->second;
}

const Operation* Indices::producer(const std::string& name) const {
  const auto found = producers_.find(name);
  return found == producers_.end() ? nullptr : found->second;
}

const ValueType* Indices::type(const std::string& name) const {
  const auto found = types_.find(name);
  return found == types_.end() ? nullptr : &found->second;
}

Terms Indices::unknown(const std::string& name, const ValueType& type) const {
  const auto elements = type.any_rank ? std::nullopt : elements_of(type.shape);
  Terms terms;
  if (!elements || *elements > kMostTerms) return terms;
  for (std::size_t i = 0; i < *elements; ++i) terms.push_back({cat(name, "[", i, "]")});
  return terms;
}

Terms Indices::shape_of(const Operation& operation) const {
  const std::string x = bound_name(operation, "x");
  const ValueType* known = type(x);
  Terms terms;
  if (known == nullptr || known->any_rank) return terms;
  for (std::size_t i = 0; i < known->shape.size(); ++i)
    terms.push_back(known->shape[i] == kUnknown ? Term{cat("length ", i, " of ", x)}
                                                : Term{"", known->shape[i]});
  return terms;
}

Terms Indices::arithmetic(const Operation& operation) const {
  const Terms *x = of(operation, "x"), *y = of(operation, "y");
  Terms terms;
  if (x == nullptr || y == nullptr || (x->size() != y->size() && x->size() != 1 && y->size() != 1))
    return terms;
  for (std::size_t i = 0; i < std::max(x->size(), y->size()); ++i)
    terms.push_back(combined(operation.type, (*x)[x->size() == 1 ? 0 : i], (*y)[y->size() == 1 ? 0 : i]));
  return terms;
}

// Some elements of a vector: gather by constants.
Terms Indices::picked(const Operation& operation) const {
  const Terms *x = of(operation, "x"), *indices = of(operation, "indices");
  Terms terms;
  if (indices == nullptr) return terms;
  const ValueType* source = type(bound_name(operation, "x"));
  if (x == nullptr) {  // the last of an input whose length is not known
    if (source && source->shape.size() == 1 && indices->size() == 1 && (*indices)[0].is_constant() &&
        (*indices)[0].offset == -1)
      terms.push_back({cat("the last of ", bound_name(operation, "x")), 0, false, true});
    return terms;
  }
  for (const Term& index : *indices) {
    if (!index.is_constant()) return {};
    const std::int64_t at =
        index.offset < 0 ? index.offset + static_cast<std::int64_t>(x->size()) : index.offset;
    if (at < 0 || at >= static_cast<std::int64_t>(x->size())) return {};
    terms.push_back((*x)[static_cast<std::size_t>(at)]);
  }
  return terms;
}

// The same by a slice; of a vector whose length differs, its first or its last element.
Terms Indices::sliced(const Operation& operation) const {
  const Terms* x = of(operation, "x");
  const std::string source = bound_name(operation, "x");
  const ValueType* known = type(source);
  const auto spans_of = spans(operation);
  if (known == nullptr || !spans_of) return {};
  std::size_t along = 0;  // the one axis that is longer than 1
  for (std::size_t axis = 0; axis < known->shape.size(); ++axis) {
    if (known->shape[axis] == 1) continue;
    if (along != axis && known->shape[along] != 1) return {};
    along = axis;
  }
  if (along >= spans_of->size()) return {};
  const AxisSpan& span = (*spans_of)[along];
  if (!span.begin.is_constant()) return {};
  if (x == nullptr) {
    if (span.begin.offset == -1) return {{cat("the last of ", source), 0, false, true}};
    const bool one = span.squeezed || (span.end.is_constant() && span.end.offset == span.begin.offset + 1);
    return one ? Terms{{cat(source, "[", span.begin.offset, "]")}} : Terms{};
  }
  if (!span.end.is_constant() || span.begin.offset < 0 ||
      span.end.offset > static_cast<std::int64_t>(x->size()) || span.begin.offset > span.end.offset)
    return {};
  return {x->begin() + span.begin.offset, x->begin() + span.end.offset};
}

Terms Indices::evaluate(const Operation& operation) const {
  const NamedType& output = operation.outputs.front();
  if (operation.type == "const") {
    const Value* value = operation.attribute("val");
    return value ? constant_terms(*value) : Terms{};
  }
  Terms terms;
  if (keeps_elements(operation.type)) {
    if (const Terms* x = of(operation, "x")) terms = *x;
    const ValueType* from = type(bound_name(operation, "x"));
    if (operation.type == "cast" && from && from->dtype == DataType::fp16)
      for (Term& term : terms) term.through_half = !term.is_constant();
    return terms;  // a part of something large stays unknown
  }
  if (operation.type == "shape") return shape_of(operation);
  if (operation.type == "gather") terms = picked(operation);
  if (operation.type == "slice_by_index") terms = sliced(operation);
  if (operation.type == "concat" || operation.type == "stack") {
    const Argument* values = operation.input("values");
    for (const Binding& binding : values ? values->bindings : std::vector<Binding>{}) {
      const Terms& part = of(binding.name);
      if (part.empty() || terms.size() + part.size() > kMostTerms) return unknown(output.name, output.type);
      terms.insert(terms.end(), part.begin(), part.end());
    }
  }
  if (is_arithmetic(operation.type)) terms = arithmetic(operation);
  if (operation.type == "select") {
    const Terms *cond = of(operation, "cond"), *a = of(operation, "a"), *b = of(operation, "b");
    if (cond && a && b && cond->size() == 1 && (*cond)[0].is_constant())
      return (*cond)[0].offset != 0 ? *a : *b;
  }
  if (operation.type == "read_state") {
    const std::string state = bound_name(operation, "input");
    const auto written = written_.find(state);
    if (written != written_.end() && !of(written->second).empty()) return of(written->second);
    if (written == written_.end()) return unknown(state, output.type);
  }
  return terms.empty() ? unknown(output.name, output.type) : terms;
}

std::optional<std::vector<AxisSpan>> Indices::spans(const Operation& slice) const {
  const ValueType* source = type(bound_name(slice, "x"));
  const Terms *begin = of(slice, "begin"), *end = of(slice, "end");
  if (source == nullptr || source->any_rank || begin == nullptr) return std::nullopt;
  const Terms *from_start = of(slice, "begin_mask"), *to_end = of(slice, "end_mask");
  const Terms *squeeze = of(slice, "squeeze_mask"), *stride = of(slice, "stride");
  std::vector<AxisSpan> spans(source->shape.size());
  for (std::size_t axis = 0; axis < spans.size(); ++axis) {
    AxisSpan& span = spans[axis];
    const std::int64_t extent = source->shape[axis];
    if (axis >= begin->size() || (stride && axis < stride->size() && (*stride)[axis].offset != 1))
      return std::nullopt;
    span.begin = flag_at(from_start, axis) ? Term{} : (*begin)[axis];
    span.squeezed = flag_at(squeeze, axis);
    if (span.squeezed) {
      span.end = combined("add", span.begin, Term{"", 1});
    } else if (flag_at(to_end, axis)) {
      span.end = extent == kUnknown ? Term{"its end"} : Term{"", extent};
    } else if (end == nullptr || axis >= end->size()) {
      return std::nullopt;
    } else {
      span.end = (*end)[axis];
    }
    for (Term* term : {&span.begin, &span.end})
      if (term->is_constant() && term->offset < 0 && extent != kUnknown) term->offset += extent;
    span.whole = span.begin.is_constant() && span.begin.offset == 0 &&
                 (flag_at(to_end, axis) ||
                  (extent != kUnknown && span.end.is_constant() && span.end.offset >= extent));
    if (span.squeezed && extent != 1) span.whole = false;
  }
  return spans;
}

}  // namespace kvtide::coreml
