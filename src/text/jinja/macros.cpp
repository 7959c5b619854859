// Macros and blocks that call one.
#include <algorithm>

#include "base/text.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {

// Refers to its statement and the interpreter; the run owns the scope in which it was defined.
struct Macro final : Object {
  Macro(Interpreter& of_, const Stmt& stmt_, std::shared_ptr<Scope> closure_)
      : of(of_), stmt(stmt_), closure(std::move(closure_)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::optional<Value> attribute(Run& run, std::string_view name) override {
    if (name == "name") return Value::text(stmt.name);
    if (name == "caller") return Value(stmt.uses_caller);
    if (name == "catch_kwargs") return Value(stmt.uses_kwargs);
    if (name == "catch_varargs") return Value(stmt.uses_varargs);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const Parameter& parameter : stmt.parameters) names.push_back(Value::text(parameter.name));
    return run.made(std::move(names), Sequence::Form::tuple);
  }
  Value call(Run&, Arguments arguments) override {
    return of.call_macro(stmt, closure, std::move(arguments));
  }
  std::string printed(Run&) const override { return cat("<Macro ", quoted_as_python(stmt.name), ">"); }

  Interpreter& of;
  const Stmt& stmt;
  std::shared_ptr<Scope> closure;
};

Value Interpreter::make_macro(const Stmt& stmt) {
  run_.own(scope_);
  return Value(std::make_shared<Macro>(*this, stmt, scope_));
}

void Interpreter::call_block(const Stmt& stmt) {
  const Expr& expr = *stmt.value;
  const Value callee = evaluate(*expr.items[0]);
  Arguments given = arguments(expr);
  given.named.emplace_back("caller", make_macro(stmt));
  run_.at(stmt.line);
  run_.refuse_undefined(callee);
  const auto* object = callee.shared_object();
  if (object == nullptr) run_.refuse(cat("'", callee.type_name(), "' object is not callable"));
  const Value text = (*object)->call(run_, std::move(given));
  print(printed(run_, text));
}

// Parameters by place, then by name, then their defaults, which see the parameters before them.
void Interpreter::bind(const Stmt& stmt, Arguments& given, Scope& scope) {
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::find_if(given.named.begin(), given.named.end(),
                                    [&](const auto& one) { return one.first == name; });
    if (found == given.named.end()) return std::nullopt;
    std::optional<Value> value(found->second);
    given.named.erase(found);
    return value;
  };
  const std::size_t count = stmt.parameters.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = stmt.parameters[i];
    auto named = take_named(parameter.name);
    if (i < given.positional.size()) {
      if (named)
        run_.refuse(cat("macro '", stmt.name, "' got two values for its argument '", parameter.name, "'"));
      scope.set(parameter.name, given.positional[i]);
    } else if (named) {
      scope.set(parameter.name, std::move(*named));
    } else if (parameter.fallback != nullptr) {
      scope.set(parameter.name, evaluate(*parameter.fallback));
    } else {
      scope.set(parameter.name, Value::undefined(cat("parameter '", parameter.name, "' was not provided")));
    }
  }
  if (stmt.uses_caller && scope.find_here("caller") == nullptr)
    scope.set("caller", take_named("caller").value_or(Value::undefined("No caller defined")));
  if (stmt.uses_kwargs) {
    auto rest = std::make_shared<Mapping>();
    for (auto& [name, value] : given.named) rest->set(Value::text(name), std::move(value));
    scope.set("kwargs", Value::mapping(std::move(rest)));
  } else if (!given.named.empty()) {
    run_.refuse(
        given.named.front().first == "caller"
            ? cat("macro '", stmt.name,
                  "' was invoked with two values for the special caller argument, or takes none")
            : cat("macro '", stmt.name, "' takes no keyword argument '", given.named.front().first, "'"));
  }
  if (stmt.uses_varargs) {
    std::vector<Value> rest;
    for (std::size_t i = count; i < given.positional.size(); ++i) rest.push_back(given.positional[i]);
    scope.set("varargs", run_.made(std::move(rest), Sequence::Form::tuple));
  } else if (given.positional.size() > count) {
    run_.refuse(cat("macro '", stmt.name, "' takes not more than ", count, " argument(s)"));
  }
}

Value Interpreter::call_macro(const Stmt& stmt, const std::shared_ptr<Scope>& closure, Arguments given) {
  const Run::Deeper deeper(run_);
  const InScope scope(*this, closure);
  bind(stmt, given, *scope_);
  MarkedText out;
  const Capture capture(*this, out);
  execute(stmt.body);
  return Value(std::move(out));
}

}  // namespace kvtide::jinja
