// The operators of an expression, from the weakest to the strongest.
#include "base/text.h"
#include "text/jinja/parser.h"

namespace kvtide::jinja {

ExprPtr Parser::condition() {
  const Deeper deeper(*this);
  const std::size_t unknown = unknown_.size();
  ExprPtr value = disjunction();
  bool found = false;
  for (; now().is_name("if"); found = true) {
    ExprPtr whole = node(ExprKind::condition, take().line);
    add(whole, disjunction());
    add(whole, std::move(value));
    add(whole, skip_name("else") ? condition() : nullptr);
    value = std::move(whole);
  }
  if (found) unknown_.resize(unknown);
  return value;
}

ExprPtr Parser::disjunction() {
  ExprPtr left = conjunction();
  while (now().is_name("or")) {
    ExprPtr whole = node(ExprKind::or_, take().line);
    add(whole, std::move(left));
    add(whole, conjunction());
    left = std::move(whole);
  }
  return left;
}

ExprPtr Parser::conjunction() {
  ExprPtr left = negation();
  while (now().is_name("and")) {
    ExprPtr whole = node(ExprKind::and_, take().line);
    add(whole, std::move(left));
    add(whole, negation());
    left = std::move(whole);
  }
  return left;
}

ExprPtr Parser::negation() {
  if (!now().is_name("not")) return comparison();
  const Deeper deeper(*this);
  ExprPtr whole = node(ExprKind::not_, take().line);
  add(whole, negation());
  return whole;
}

ExprPtr Parser::comparison() {
  constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::eq}, {"!=", Op::ne}, {"<", Op::lt},
                                                      {"<=", Op::le}, {">", Op::gt},  {">=", Op::ge}};
  ExprPtr first = sum();
  ExprPtr whole;
  const auto put = [&](Op op, int line) {
    if (whole == nullptr) {
      whole = node(ExprKind::compare, line);
      add(whole, std::move(first));
    }
    whole->ops.push_back(op);
    add(whole, sum());
  };
  for (bool found = true; found;) {
    found = false;
    const int line = now().line;
    for (const auto& [text, op] : kOps) {
      if (!skip_op(text)) continue;
      put(op, line);
      found = true;
      break;
    }
    if (found) continue;
    if (skip_name("in")) {
      put(Op::in, line);
      found = true;
    } else if (now().is_name("not") && ahead().is_name("in")) {
      take();
      take();
      put(Op::not_in, line);
      found = true;
    }
  }
  return whole == nullptr ? std::move(first) : std::move(whole);
}

ExprPtr Parser::binary(std::initializer_list<std::pair<std::string_view, Op>> ops,
                       ExprPtr (Parser::*side)()) {
  ExprPtr left = (this->*side)();
  for (bool found = true; found;) {
    found = false;
    for (const auto& [text, op] : ops) {
      if (!now().is_op(text)) continue;
      ExprPtr whole = node(ExprKind::binary, take().line);
      whole->ops.push_back(op);
      add(whole, std::move(left));
      add(whole, (this->*side)());
      left = std::move(whole);
      found = true;
      break;
    }
  }
  return left;
}

ExprPtr Parser::sum() { return binary({{"+", Op::add}, {"-", Op::subtract}}, &Parser::concatenation); }

ExprPtr Parser::concatenation() {
  ExprPtr first = product();
  if (!now().is_op("~")) return first;
  ExprPtr whole = node(ExprKind::concat, now().line);
  add(whole, std::move(first));
  while (skip_op("~")) add(whole, product());
  return whole;
}

ExprPtr Parser::product() {
  return binary({{"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}},
                &Parser::power);
}

ExprPtr Parser::power() {
  ExprPtr left = unary();
  while (now().is_op("**")) {
    ExprPtr whole = node(ExprKind::binary, take().line);
    whole->ops.push_back(Op::power);
    add(whole, std::move(left));
    add(whole, unary());
    left = std::move(whole);
  }
  return left;
}

ExprPtr Parser::unary(bool with_filters) {
  ExprPtr value;
  if (now().is_op("-") || now().is_op("+")) {
    const Deeper deeper(*this);
    value = node(now().is_op("-") ? ExprKind::negative : ExprKind::positive, now().line);
    take();
    add(value, unary(false));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : std::move(value);
}

}  // namespace kvtide::jinja
