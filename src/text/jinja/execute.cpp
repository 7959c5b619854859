// Statements.
#include "base/text.h"
#include "text/jinja/compare.h"
#include "text/jinja/functions.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/loop.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {

MarkedText Interpreter::render(const Body& body) {
  MarkedText out;
  const Capture capture(*this, out);
  run_.own(scope_);
  const InScope scope(*this);
  execute(body);
  return out;
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  const Run::Deeper deeper(run_);
  for (const Stmt& stmt : body) {
    const Flow flow = execute(stmt);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

void Interpreter::print(const MarkedText& text) {
  run_.charge(text.size() + 24 * text.given.size());
  out_->append(text);
}

Interpreter::Flow Interpreter::execute(const Stmt& stmt) {
  run_.step();
  run_.at(stmt.line);
  switch (stmt.kind) {
    case StmtKind::text:
      run_.charge(stmt.text.size());
      out_->append(stmt.text);
      break;
    case StmtKind::print:
      print(printed(run_, evaluate(*stmt.value)));
      break;
    case StmtKind::if_:
      return execute_if(stmt);
    case StmtKind::for_:
      return execute_for(stmt);
    case StmtKind::set:
      set(stmt);
      break;
    case StmtKind::set_block:
      set_block(stmt);
      break;
    case StmtKind::macro:
      scope_->set(stmt.name, make_macro(stmt));
      break;
    case StmtKind::call_block:
      call_block(stmt);
      break;
    case StmtKind::filter_block: {
      const Value text = captured(stmt.body);
      print(printed(run_, filtered(*stmt.value, &text)));
      break;
    }
    case StmtKind::with:
      execute_with(stmt);
      break;
    case StmtKind::scope: {
      const InScope scope(*this);
      return execute(stmt.body);
    }
    case StmtKind::break_:
      return Flow::break_;
    case StmtKind::continue_:
      return Flow::continue_;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::execute_if(const Stmt& stmt) {
  const auto holds = [this](const ExprPtr& condition) { return evaluate(*condition).truth(); };
  if (holds(stmt.value)) return execute(stmt.body);
  for (const Stmt& branch : stmt.otherwise)
    if (branch.value == nullptr || holds(branch.value)) return execute(branch.body);
  return Flow::on;
}

Interpreter::Flow Interpreter::execute_for(const Stmt& stmt) {
  std::vector<Value> items = items_of(run_, evaluate(*stmt.value));
  if (stmt.condition != nullptr) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const InScope scope(*this);
      assign(*stmt.target, item);
      if (evaluate(*stmt.condition).truth()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  run_.charge(items.size() * sizeof(Value));
  if (items.empty()) {
    const InScope scope(*this);
    return execute(stmt.otherwise);
  }
  const auto loop = std::make_shared<Loop>(std::move(items));
  const Value loop_value = Loop::value(loop);
  for (; loop->at < loop->items.size(); ++loop->at) {
    const InScope scope(*this);
    run_.step();
    scope_->set("loop", loop_value);
    assign(*stmt.target, loop->items[loop->at]);
    if (execute(stmt.body) == Flow::break_) break;
  }
  return Flow::on;
}

void Interpreter::execute_with(const Stmt& stmt) {
  std::vector<Value> all;
  for (const Parameter& parameter : stmt.parameters) all.push_back(evaluate(*parameter.fallback));
  const InScope scope(*this);
  for (std::size_t i = 0; i < all.size(); ++i) scope_->set(stmt.parameters[i].name, std::move(all[i]));
  execute(stmt.body);
}

void Interpreter::set(const Stmt& stmt) {
  const Value value = evaluate(*stmt.value);
  run_.at(stmt.line);
  if (stmt.target != nullptr) return assign(*stmt.target, value);
  const Value* owner = scope_->find(stmt.name);
  if (owner == nullptr) owner = variables_.find(stmt.name);
  auto* space = owner == nullptr ? nullptr : dynamic_cast<Namespace*>(owner->object());
  if (space == nullptr)
    run_.refuse(cat("cannot assign attribute on non-namespace object ", quoted(stmt.name)));
  space->attributes->set(stmt.text, value);
}

void Interpreter::set_block(const Stmt& stmt) {
  Value text = captured(stmt.body);
  if (stmt.value != nullptr) text = filtered(*stmt.value, &text);
  if (stmt.target != nullptr) return assign(*stmt.target, text);
  const Value* owner = scope_->find(stmt.name);
  auto* space = owner == nullptr ? nullptr : dynamic_cast<Namespace*>(owner->object());
  if (space == nullptr)
    run_.refuse(cat("cannot assign attribute on non-namespace object ", quoted(stmt.name)));
  space->attributes->set(stmt.text, text);
}

void Interpreter::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::name) return scope_->set(target.name, value);
  const Run::Deeper deeper(run_);
  run_.refuse_undefined(value);
  const auto parts = items_of(run_, value);
  const std::size_t wanted = target.items.size();
  if (parts.size() < wanted)
    run_.refuse(cat("not enough values to unpack (expected ", wanted, ", got ", parts.size(), ")"));
  if (parts.size() > wanted) run_.refuse(cat("too many values to unpack (expected ", wanted, ")"));
  for (std::size_t i = 0; i < wanted; ++i) assign(*target.items[i], parts[i]);
}

Value Interpreter::captured(const Body& body) {
  MarkedText out;
  const Capture capture(*this, out);
  const InScope scope(*this);
  execute(body);
  return Value(std::move(out));
}

}  // namespace kvtide::jinja
