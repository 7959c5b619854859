// Expressions.
#include "base/text.h"
#include "text/jinja/attributes.h"
#include "text/jinja/compare.h"
#include "text/jinja/functions.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {

Value Interpreter::evaluate(const Expr& expr) {
  const Run::Deeper deeper(run_);
  run_.step();
  run_.at(expr.line);
  switch (expr.kind) {
    case ExprKind::constant:
      return expr.constant;
    case ExprKind::name:
      return name(expr);
    case ExprKind::list:
      return run_.made(values(expr, 0));
    case ExprKind::tuple:
      return run_.made(values(expr, 0), Sequence::Form::tuple);
    case ExprKind::mapping:
      return mapping(expr);
    case ExprKind::attribute:
      return attribute_of(run_, evaluate(*expr.items[0]), expr.name);
    case ExprKind::slice:
      return sliced(expr);
    case ExprKind::call:
      return call(expr);
    case ExprKind::filter:
      return filtered(expr, nullptr);
    case ExprKind::test:
      return tested(expr);
    case ExprKind::concat:
      return concatenated(expr);
    case ExprKind::compare:
      return compared(expr);
    default:
      return combined(expr);
  }
}

Value Interpreter::name(const Expr& expr) {
  if (const Value* found = scope_->find(expr.name)) return *found;
  if (const Value* found = variables_.find(expr.name)) return *found;
  if (auto function = find_function(expr.name)) return std::move(*function);
  return Value::undefined(cat("'", expr.name, "' is undefined"));
}

// What has one, two or three parts that are evaluated as they are needed.
Value Interpreter::combined(const Expr& expr) {
  Value first = evaluate(*expr.items[0]);
  switch (expr.kind) {
    case ExprKind::not_:
      return Value(!first.truth());
    case ExprKind::negative:
      return negative(run_, first);
    case ExprKind::positive:
      return positive(run_, first);
    case ExprKind::and_:
      return first.truth() ? evaluate(*expr.items[1]) : first;
    case ExprKind::or_:
      return first.truth() ? first : evaluate(*expr.items[1]);
    case ExprKind::condition:
      if (first.truth()) return evaluate(*expr.items[1]);
      if (expr.items[2] != nullptr) return evaluate(*expr.items[2]);
      return Value::undefined(cat("the inline if-expression on line ", expr.line,
                                  " evaluated to false and no else section was defined."));
    default:
      break;
  }
  const Value second = evaluate(*expr.items[1]);
  run_.at(expr.line);
  return expr.kind == ExprKind::item ? item_of(run_, first, second)
                                     : arithmetic(run_, expr.ops[0], first, second);
}

Value Interpreter::concatenated(const Expr& expr) {
  MarkedText out;
  for (const ExprPtr& item : expr.items) {
    const MarkedText text = printed(run_, evaluate(*item));
    run_.charge(text.size());
    out.append(text);
  }
  return Value(std::move(out));
}

Value Interpreter::compared(const Expr& expr) {
  Value left = evaluate(*expr.items[0]);
  for (std::size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.items[i + 1]);
    run_.at(expr.line);
    if (!comparison(run_, expr.ops[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::mapping(const Expr& expr) {
  auto made = std::make_shared<Mapping>();
  for (std::size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    Value key = evaluate(*expr.items[i]);
    made->set(std::move(key), evaluate(*expr.items[i + 1]));
  }
  run_.charge(4 * sizeof(Value) * made->size());
  return Value::mapping(std::move(made));
}

Value Interpreter::sliced(const Expr& expr) {
  const Value of = evaluate(*expr.items[0]);
  const Value begin = part(expr.items[1]), end = part(expr.items[2]);
  return slice(run_, of, begin, end, part(expr.items[3]));
}

std::vector<Value> Interpreter::values(const Expr& expr, std::size_t from) {
  std::vector<Value> all;
  for (std::size_t i = from; i < expr.items.size(); ++i) all.push_back(evaluate(*expr.items[i]));
  return all;
}

Arguments Interpreter::arguments(const Expr& expr) {
  Arguments all;
  all.positional = values(expr, 1);
  for (const auto& [key, value] : expr.named) all.named.emplace_back(key, evaluate(*value));
  if (expr.spread != nullptr)
    for (Value& item : items_of(run_, evaluate(*expr.spread))) all.positional.push_back(std::move(item));
  if (expr.named_spread != nullptr) {
    const Value more = evaluate(*expr.named_spread);
    run_.refuse_undefined(more);
    if (more.mapping() == nullptr) run_.refuse("what stands behind ** must be a mapping");
    for (const auto& [key, value] : more.mapping()->items()) {
      if (key.marked() == nullptr) run_.refuse("keywords must be strings");
      all.named.emplace_back(key.marked()->bytes, value);
    }
  }
  run_.charge((all.positional.size() + all.named.size()) * sizeof(Value));
  return all;
}

Value Interpreter::call(const Expr& expr) {
  const Value callee = evaluate(*expr.items[0]);
  Arguments given = arguments(expr);
  run_.at(expr.line);
  run_.refuse_undefined(callee);
  const auto* object = callee.shared_object();
  if (object == nullptr) run_.refuse(cat("'", callee.type_name(), "' object is not callable"));
  return (*object)->call(run_, std::move(given));
}

Value Interpreter::filtered(const Expr& expr, const Value* block) {
  // A block hands its text to the innermost filter.
  Value of;
  if (expr.items[0] == nullptr)
    of = *block;
  else
    of = expr.items[0]->kind == ExprKind::filter && block != nullptr ? filtered(*expr.items[0], block)
                                                                     : evaluate(*expr.items[0]);
  Arguments given = arguments(expr);
  run_.at(expr.line);
  if (expr.function == nullptr) run_.refuse(cat("there is no filter named ", quoted(expr.name)));
  return expr.function(run_, of, given);
}

Value Interpreter::tested(const Expr& expr) {
  const Value of = evaluate(*expr.items[0]);
  Arguments given = arguments(expr);
  run_.at(expr.line);
  if (expr.function == nullptr) run_.refuse(cat("there is no test named ", quoted(expr.name)));
  return expr.function(run_, of, given);
}

}  // namespace kvtide::jinja
