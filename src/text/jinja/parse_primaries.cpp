// Names, literals, and what stands behind them: attributes, items, calls, filters and tests.
#include <charconv>
#include <cstdlib>

#include "base/text.h"
#include "kvtide/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/parser.h"
#include "text/jinja/value_tests.h"

namespace kvtide::jinja {
namespace primaries {
namespace {

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '_') out += c;
  return out;
}

// nullopt: it has more than 63 bits.
std::optional<std::int64_t> integer_of(std::string_view text) {
  std::string digits = without_underscores(text);
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) >= 'a') {
    const char kind = static_cast<char>(digits[1] | 0x20);
    base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
    digits.erase(0, 2);
  }
  std::int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

double real_of(std::string_view text) {
  const std::string digits = without_underscores(text);
  double value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

}  // namespace
}  // namespace primaries

ExprPtr Parser::primary() {
  const Token token = take();
  ExprPtr made = node(ExprKind::constant, token.line);
  switch (token.kind) {
    case TokenKind::name:
      if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
        made->constant = Value(token.text == "true" || token.text == "True");
      } else if (token.text != "none" && token.text != "None") {
        made->kind = ExprKind::name;
        made->name = token.text;
        saw_caller_ |= token.text == "caller";
        saw_kwargs_ |= token.text == "kwargs";
        saw_varargs_ |= token.text == "varargs";
      }
      return made;
    case TokenKind::text: {
      std::string text = token.text;
      while (now().kind == TokenKind::text) text += take().text;
      made->constant = Value(MarkedText(std::move(text)));
      return made;
    }
    case TokenKind::integer: {
      const auto value = primaries::integer_of(token.text);
      if (!value) refuse_at(token.line, cat(token.text, " is too large for a whole number of 64 bits"));
      made->constant = Value(*value);
      return made;
    }
    case TokenKind::real:
      made->constant = Value(primaries::real_of(token.text));
      return made;
    default:
      break;
  }
  if (token.is_op("(")) {
    ExprPtr inside = tuple(true, true);
    expect_op(")");
    return inside;
  }
  if (token.is_op("[")) return list();
  if (token.is_op("{")) return mapping();
  refuse_at(token.line, cat("expected an expression, got ", shown(token)));
}

bool Parser::at_tuple_end() const {
  return now().kind == TokenKind::print_end || now().kind == TokenKind::block_end || now().is_op(")") ||
         now().is_name("recursive");
}

ExprPtr Parser::tuple(bool with_condition, bool in_parentheses) {
  const int line = now().line;
  if (at_tuple_end() && !in_parentheses) refuse(cat("expected an expression, got ", shown(now())));
  ExprPtr all = node(ExprKind::tuple, line);
  if (at_tuple_end()) return all;
  ExprPtr first = expression(with_condition);
  if (!now().is_op(",")) return first;
  add(all, std::move(first));
  while (skip_op(",") && !at_tuple_end()) add(all, expression(with_condition));
  return all;
}

ExprPtr Parser::list() {
  ExprPtr all = node(ExprKind::list, now().line);
  while (!now().is_op("]")) {
    if (!all->items.empty()) {
      expect_op(",");
      if (now().is_op("]")) break;
    }
    add(all, expression());
  }
  expect_op("]");
  return all;
}

ExprPtr Parser::mapping() {
  ExprPtr all = node(ExprKind::mapping, now().line);
  while (!now().is_op("}")) {
    if (!all->items.empty()) {
      expect_op(",");
      if (now().is_op("}")) break;
    }
    add(all, expression());
    expect_op(":");
    add(all, expression());
  }
  expect_op("}");
  return all;
}

ExprPtr Parser::postfix(ExprPtr of) {
  for (;;) {
    if (now().is_op(".") || now().is_op("["))
      of = subscript(std::move(of));
    else if (now().is_op("("))
      of = call(std::move(of));
    else
      return of;
  }
}

ExprPtr Parser::subscript(ExprPtr of) {
  const Token token = take();
  if (token.is_op(".")) {
    const Token name = take();
    ExprPtr made = node(name.kind == TokenKind::name ? ExprKind::attribute : ExprKind::item, token.line);
    add(made, std::move(of));
    if (name.kind == TokenKind::name) {
      made->name = name.text;
    } else if (name.kind == TokenKind::integer) {
      ExprPtr place = node(ExprKind::constant, name.line);
      place->constant = Value(primaries::integer_of(name.text).value_or(0));
      add(made, std::move(place));
    } else {
      refuse_at(name.line, cat("expected a name or a number behind the point, got ", shown(name)));
    }
    return made;
  }
  ExprPtr place = subscribed();
  if (now().is_op(",")) refuse("a subscript of several parts is not supported");
  expect_op("]");
  if (place->kind == ExprKind::slice && place->items[0] == nullptr) {
    place->depth = std::max(place->depth, of->depth + 1);
    if (place->depth > kMostNesting) refuse("an expression is nested too deeply");
    place->items[0] = std::move(of);
    return place;
  }
  ExprPtr made = node(ExprKind::item, token.line);
  add(made, std::move(of));
  add(made, std::move(place));
  return made;
}

ExprPtr Parser::subscribed() {
  ExprPtr made = node(ExprKind::slice, now().line);
  made->items.emplace_back();
  if (now().is_op(":")) {
    made->items.emplace_back();
  } else {
    ExprPtr first = expression();
    if (!now().is_op(":")) return first;
    add(made, std::move(first));
  }
  take();
  const auto at_end = [&] { return now().is_op("]") || now().is_op(",") || now().is_op(":"); };
  add(made, at_end() ? nullptr : expression());
  add(made, skip_op(":") && !at_end() ? expression() : nullptr);
  return made;
}

ExprPtr Parser::call(ExprPtr of) {
  ExprPtr made = node(ExprKind::call, now().line);
  add(made, std::move(of));
  call_arguments(made);
  return made;
}

void Parser::call_arguments(ExprPtr& to) {
  const int line = now().line;
  expect_op("(");
  const auto require = [&](bool fine) {
    if (!fine)
      refuse_at(line, "the arguments of a call stand in a wrong order: values, then names, *args, **kwargs");
  };
  const auto value = [&] {
    ExprPtr made = expression();
    to->depth = std::max(to->depth, made->depth + 1);
    if (to->depth > kMostNesting) refuse_at(line, "an expression is nested too deeply");
    return made;
  };
  for (bool first = true; !now().is_op(")"); first = false) {
    if (!first) {
      expect_op(",");
      if (now().is_op(")")) break;
    }
    if (skip_op("*")) {
      require(to->spread == nullptr && to->named_spread == nullptr);
      to->spread = value();
    } else if (skip_op("**")) {
      require(to->named_spread == nullptr);
      to->named_spread = value();
    } else if (now().kind == TokenKind::name && ahead().is_op("=")) {
      require(to->named_spread == nullptr);
      std::string name = take().text;
      take();
      to->named.emplace_back(std::move(name), value());
    } else {
      require(to->spread == nullptr && to->named_spread == nullptr && to->named.empty());
      add(to, value());
    }
  }
  expect_op(")");
}

ExprPtr Parser::filters(ExprPtr of) {
  for (;;) {
    if (now().is_op("|")) {
      take();
      of = filter(std::move(of));
    } else if (now().is_name("is")) {
      of = test(std::move(of));
    } else if (now().is_op("(")) {
      of = call(std::move(of));
    } else {
      return of;
    }
  }
}

ExprPtr Parser::filter(ExprPtr of) {
  ExprPtr made = node(ExprKind::filter, now().line);
  add(made, std::move(of));
  made->name = expect_name();
  while (skip_op(".")) made->name += "." + expect_name();
  made->function = find_filter(made->name);
  if (made->function == nullptr)
    unknown_.push_back(cat("line ", made->line, ": there is no filter named ", quoted(made->name)));
  if (now().is_op("(")) call_arguments(made);
  return made;
}

ExprPtr Parser::test(ExprPtr of) {
  const int line = take().line;
  const bool is_not = skip_name("not");
  ExprPtr made = node(ExprKind::test, line);
  add(made, std::move(of));
  made->name = expect_name();
  while (skip_op(".")) made->name += "." + expect_name();
  made->function = find_test(made->name);
  if (made->function == nullptr)
    unknown_.push_back(cat("line ", line, ": there is no test named ", quoted(made->name)));
  const Token& next = now();
  const bool is_value =
      next.kind == TokenKind::text || next.kind == TokenKind::integer || next.kind == TokenKind::real ||
      next.is_op("[") || next.is_op("{") ||
      (next.kind == TokenKind::name && !next.is_name("else") && !next.is_name("or") && !next.is_name("and"));
  if (next.is_op("(")) {
    call_arguments(made);
  } else if (is_value) {
    if (next.is_name("is")) refuse("tests cannot be chained with 'is'");
    add(made, postfix(primary()));
  }
  if (!is_not) return made;
  ExprPtr negated = node(ExprKind::not_, line);
  add(negated, std::move(made));
  return negated;
}

}  // namespace kvtide::jinja
