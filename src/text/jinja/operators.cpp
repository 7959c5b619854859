#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "text/jinja/compare.h"
#include "text/jinja/format.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {
namespace operators {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">="};

std::string_view sign_of(Op op) { return kSigns[static_cast<std::size_t>(op)]; }

[[noreturn]] void refuse_operands(Run& run, Op op, const Value& a, const Value& b) {
  run.refuse_undefined(a);
  run.refuse_undefined(b);
  run.refuse(cat("unsupported operand type(s) for ", sign_of(op), ": '", a.type_name(), "' and '",
                 b.type_name(), "'"));
}

Value fitting(Run& run, bool overflowed, const std::int64_t* value) {
  if (overflowed) run.refuse("a whole number has more than 64 bits");
  return Value(*value);
}

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

Value whole_power(Run& run, std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) run.refuse("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  bool overflowed = false;
  if (base == 0 || base == 1 || base == -1)
    return Value(exponent == 0 ? std::int64_t{1} : base == -1 && exponent % 2 == 0 ? std::int64_t{1} : base);
  for (std::int64_t i = 0; i < exponent && !overflowed; ++i)
    overflowed = __builtin_mul_overflow(result, base, &result);
  return fitting(run, overflowed, &result);
}

Value of_wholes(Run& run, Op op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  const bool divides = op == Op::divide || op == Op::floor_divide || op == Op::modulo;
  if (divides && b == 0) run.refuse("division by zero");
  switch (op) {
    case Op::add:
      return fitting(run, __builtin_add_overflow(a, b, &result), &result);
    case Op::subtract:
      return fitting(run, __builtin_sub_overflow(a, b, &result), &result);
    case Op::multiply:
      return fitting(run, __builtin_mul_overflow(a, b, &result), &result);
    case Op::divide:
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Op::floor_divide:
      if (b == -1) return fitting(run, __builtin_sub_overflow(std::int64_t{0}, a, &result), &result);
      return Value(floor_divided(a, b));
    case Op::modulo:
      return Value(b == -1 ? std::int64_t{0} : a - floor_divided(a, b) * b);
    default:
      return whole_power(run, a, b);
  }
}

Value of_reals(Run& run, Op op, double a, double b) {
  const bool divides = op == Op::divide || op == Op::floor_divide || op == Op::modulo;
  if (divides && b == 0) run.refuse("division by zero");
  switch (op) {
    case Op::add:
      return Value(a + b);
    case Op::subtract:
      return Value(a - b);
    case Op::multiply:
      return Value(a * b);
    case Op::divide:
      return Value(a / b);
    case Op::floor_divide:
      return Value(std::floor(a / b));
    case Op::modulo: {
      const double rest = std::fmod(a, b);
      return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default:
      if (a == 0 && b < 0) run.refuse("0.0 cannot be raised to a negative power");
      if (a < 0 && std::floor(b) != b) run.refuse("a negative number cannot be raised to a broken power");
      return Value(std::pow(a, b));
  }
}

Value repeated(Run& run, const Value& what, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  const auto count = static_cast<std::size_t>(times);
  const auto check = [&](std::size_t size) {
    if (size > 0 && count > (std::size_t{1} << 40) / size) run.refuse("the repeated value is too large");
    run.charge(size * count);
  };
  if (const MarkedText* text = what.marked()) {
    check(text->size() + 24 * text->given.size());
    MarkedText out;
    if (text->empty()) return Value(out);
    for (std::size_t i = 0; i < count; ++i) out.append(*text);
    return Value(std::move(out));
  }
  const Sequence& all = *what.sequence();
  check(all.items.size() * sizeof(Value));
  std::vector<Value> items;
  if (all.items.empty()) return Value::list({}, all.form);
  for (std::size_t i = 0; i < count; ++i) items.insert(items.end(), all.items.begin(), all.items.end());
  return Value::list(std::move(items), all.form);
}

Value joined_texts(Run& run, const Value& a, const Value& b) {
  const bool escapes = a.marked()->escaped || b.marked()->escaped;
  MarkedText out = escapes ? html_escaped(run, a) : *a.marked();
  run.charge(a.marked()->size() + b.marked()->size());
  out.append(escapes ? html_escaped(run, b) : *b.marked());
  out.escaped = escapes;
  return run.made(std::move(out));
}

Value joined_lists(Run& run, const Value& a, const Value& b) {
  std::vector<Value> items = a.sequence()->items;
  items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
  return run.made(std::move(items), a.sequence()->form);
}

}  // namespace
}  // namespace operators

Value arithmetic(Run& run, Op op, const Value& a, const Value& b) {
  using namespace operators;
  if (a.whole() && b.whole()) return of_wholes(run, op, *a.whole(), *b.whole());
  if (a.number() && b.number()) return of_reals(run, op, *a.number(), *b.number());
  if (op == Op::add && a.marked() != nullptr && b.marked() != nullptr) return joined_texts(run, a, b);
  if (op == Op::add && a.is_list_or_tuple() && b.is_list_or_tuple() &&
      a.sequence()->form == b.sequence()->form)
    return joined_lists(run, a, b);
  const auto repeats = [](const Value& value) {
    return value.marked() != nullptr || value.is_list_or_tuple();
  };
  if (op == Op::multiply && repeats(a) && b.whole()) return repeated(run, a, *b.whole());
  if (op == Op::multiply && repeats(b) && a.whole()) return repeated(run, b, *a.whole());
  if (op == Op::modulo && a.marked() != nullptr) return Value(percent_format(run, *a.marked(), b));
  if (op == Op::add && a.marked() != nullptr) {
    run.refuse_undefined(b);
    run.refuse(cat("can only concatenate str (not \"", b.type_name(), "\") to str"));
  }
  if (op == Op::add && a.is_list_or_tuple()) {
    run.refuse_undefined(b);
    run.refuse(
        cat("can only concatenate ", a.type_name(), " (not \"", b.type_name(), "\") to ", a.type_name()));
  }
  refuse_operands(run, op, a, b);
}

Value negative(Run& run, const Value& value) {
  if (value.whole()) return arithmetic(run, Op::subtract, Value(std::int64_t{0}), value);
  if (value.real() != nullptr) return Value(-*value.real());
  run.refuse_undefined(value);
  run.refuse(cat("bad operand type for unary -: '", value.type_name(), "'"));
}

Value positive(Run& run, const Value& value) {
  if (const auto whole = value.whole()) return Value(*whole);
  if (value.real() != nullptr) return value;
  run.refuse_undefined(value);
  run.refuse(cat("bad operand type for unary +: '", value.type_name(), "'"));
}

bool comparison(Run& run, Op op, const Value& a, const Value& b) {
  const bool is_nan =
      (a.real() != nullptr && std::isnan(*a.real())) || (b.real() != nullptr && std::isnan(*b.real()));
  switch (op) {
    case Op::eq:
      return are_equal(run, a, b);
    case Op::ne:
      return !are_equal(run, a, b);
    case Op::lt:
      return is_less(run, a, b, "<");
    case Op::gt:
      return is_less(run, b, a, ">");
    case Op::le:
      return !is_less(run, b, a, "<=") && !is_nan;
    case Op::ge:
      return !is_less(run, a, b, ">=") && !is_nan;
    case Op::in:
      return contains(run, b, a);
    default:
      return !contains(run, b, a);
  }
}

MarkedText html_escaped(Run& run, const Value& value) {
  MarkedText text = printed(run, value);
  if (text.escaped) return text;
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::string_view kEntities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  run.charge(5 * text.size());
  MarkedText out;
  std::size_t copied = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t which = kSpecial.find(text.bytes[at]);
    if (which == kSpecial.npos) continue;
    out.append(text, copied, at);
    out.append(kEntities[which]);
    copied = at + 1;
  }
  out.append(text, copied, text.size());
  out.escaped = true;
  return out;
}

}  // namespace kvtide::jinja
