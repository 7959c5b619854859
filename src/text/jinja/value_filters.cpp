// Filters of numbers and of values of any kind.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "text/jinja/attributes.h"
#include "text/jinja/characters.h"
#include "text/jinja/filter_tables.h"
#include "text/jinja/number_reading.h"
#include "text/jinja/operators.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {
namespace value_filter {
namespace {

Value fallback(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "default", given, {"default_value", "boolean"});
  const bool is_missing = self.is_undefined() || (args.flag(1, false) && !self.truth());
  return is_missing ? args.value_or(0, Value::text("")) : self;
}

Value attr(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "attr", given, {"name"});
  const MarkedText name = args.text(0);
  if (self.mapping() == nullptr) return attribute_of(run, self, name.view());
  // Only what the mapping itself has, no item.
  const Native method = find_mapping_method(name.view());
  if (method != nullptr) return attribute_of(run, self, name.view());
  return Value::undefined(cat("'dict object' has no attribute '", name.bytes, "'"));
}

std::optional<std::int64_t> truncated(double value) {
  if (!(std::fabs(value) < 9.2e18)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Value to_whole(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "int", given, {"default", "base"});
  run.refuse_undefined(self);
  if (const auto whole = self.whole()) return Value(*whole);
  if (const MarkedText* text = self.marked()) {
    if (const auto whole = read_whole(text->view(), static_cast<int>(args.whole(1, 10))))
      return Value(*whole);
    if (const auto real = read_real(text->view()))
      if (const auto whole = truncated(*real)) return Value(*whole);
  } else if (self.real() != nullptr) {
    if (const auto whole = truncated(*self.real())) return Value(*whole);
  }
  return args.value_or(0, Value(std::int64_t{0}));
}

Value to_real(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "float", given, {"default"});
  run.refuse_undefined(self);
  if (const auto number = self.number()) return Value(*number);
  if (self.marked() != nullptr)
    if (const auto real = read_real(self.marked()->view())) return Value(*real);
  return args.value_or(0, Value(0.0));
}

Value absolute(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "abs", given, {});
  if (self.whole()) return *self.whole() < 0 ? negative(run, self) : Value(*self.whole());
  if (self.real() != nullptr) return Value(std::fabs(*self.real()));
  run.refuse_undefined(self);
  run.refuse(cat("bad operand type for abs(): '", self.type_name(), "'"));
}

// To so many decimal places, halves to even, from the exact value: what printing does.
double rounded(double value, std::int64_t places) {
  if (!std::isfinite(value)) return value;
  if (places < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-places));
    return std::nearbyint(value / unit) * unit;
  }
  char digits[400];
  const int length = std::snprintf(digits, sizeof digits, "%.*f",
                                   static_cast<int>(std::min<std::int64_t>(places, 40)), value);
  double out = value;
  std::from_chars(digits, digits + length, out);
  return out;
}

Value round(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "round", given, {"precision", "method"});
  const MarkedText method = args.text(1, "common");
  const std::int64_t places = args.whole(0, 0);
  run.refuse_undefined(self);
  if (!self.number()) run.refuse(cat("type ", self.type_name(), " doesn't define __round__ method"));
  if (method.bytes == "common") {
    if (self.whole() && places >= 0) return Value(*self.whole());
    const double value = rounded(*self.number(), places);
    return self.whole() ? Value(static_cast<std::int64_t>(value)) : Value(value);
  }
  if (method.bytes != "ceil" && method.bytes != "floor")
    run.refuse("round: method must be common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(places)), scaled = *self.number() * unit;
  return Value((method.bytes == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value length(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "length", given, {});
  if (const MarkedText* text = self.marked()) {
    run.step(1 + text->size() / 64);
    return Value::count(character_count(text->view()));
  }
  if (const Mapping* all = self.mapping()) return Value::count(all->size());
  if (self.is_undefined()) return Value(std::int64_t{0});
  const Sequence* all = self.sequence();
  if (all == nullptr || all->form == Sequence::Form::generator)
    run.refuse(cat("object of type '", self.type_name(), "' has no len()"));
  return Value::count(all->items.size());
}

std::optional<std::string> indent_of(Run& run, const Value& value) {
  if (value.is_none()) return std::nullopt;
  if (value.marked() != nullptr) return value.marked()->bytes;
  const auto width = value.whole();
  if (!width) run.refuse("tojson: indent must be a whole number or a text");
  return std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(*width, 0, 1000)), ' ');
}

Value tojson(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = args.flag(0, false);
  style.indent = indent_of(run, args.value_or(1, nullptr));
  style.sorted = args.flag(3, false);
  if (style.indent) style.between_items.resize(1);
  const Value separators = args.value_or(2, nullptr);
  if (!separators.is_none()) {
    const Sequence* two = separators.sequence();
    if (two == nullptr || two->items.size() != 2 || two->items[0].marked() == nullptr ||
        two->items[1].marked() == nullptr)
      run.refuse("tojson: separators must be two texts");
    style.between_items = two->items[0].marked()->bytes;
    style.behind_key = two->items[1].marked()->bytes;
  }
  return run.made(json_of(run, self, style));
}

constexpr NamedNative kFilters[] = {
    {"abs", absolute},  {"attr", attr},    {"count", length},  {"d", fallback},  {"default", fallback},
    {"float", to_real}, {"int", to_whole}, {"length", length}, {"round", round}, {"tojson", tojson},
};

}  // namespace
}  // namespace value_filter

std::span<const NamedNative> value_filters() { return value_filter::kFilters; }

}  // namespace kvtide::jinja
