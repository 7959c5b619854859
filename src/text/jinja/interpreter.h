// interpreter.h: walks the tree of a template, with the values of one rendering.
//
// Ownership: refers to the tree and the run. Thread rules: belongs to one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/jinja/run.h"
#include "text/jinja/syntax.h"
#include "text/jinja/value.h"

namespace kvtide::jinja {

class Interpreter {
 public:
  // `variables`: what the template can read by name.
  Interpreter(Run& run, const Mapping& variables) : run_(run), variables_(variables) {}

  MarkedText render(const Body& body);

 private:
  enum class Flow { on, break_, continue_ };
  friend struct Macro;
  class InScope;
  class Capture;

  // evaluate.cpp
  Value evaluate(const Expr& expr);
  Value name(const Expr& expr);
  Value combined(const Expr& expr);
  Value concatenated(const Expr& expr);
  Value compared(const Expr& expr);
  Value mapping(const Expr& expr);
  Value sliced(const Expr& expr);
  Value part(const ExprPtr& expr) { return expr == nullptr ? Value(nullptr) : evaluate(*expr); }
  Value call(const Expr& expr);
  Value filtered(const Expr& expr, const Value* block);
  Value tested(const Expr& expr);
  std::vector<Value> values(const Expr& expr, std::size_t from);
  Arguments arguments(const Expr& expr);

  // execute.cpp
  Flow execute(const Body& body);
  Flow execute(const Stmt& stmt);
  void print(const MarkedText& text);
  Flow execute_if(const Stmt& stmt);
  Flow execute_for(const Stmt& stmt);
  void execute_with(const Stmt& stmt);
  void set(const Stmt& stmt);
  void set_block(const Stmt& stmt);
  void assign(const Expr& target, const Value& value);
  void call_block(const Stmt& stmt);
  Value captured(const Body& body);
  Value make_macro(const Stmt& stmt);
  Value call_macro(const Stmt& stmt, const std::shared_ptr<Scope>& closure, Arguments arguments);
  void bind(const Stmt& stmt, Arguments& arguments, Scope& scope);

  Run& run_;
  const Mapping& variables_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  MarkedText* out_ = nullptr;
};

// A scope inside the present one, until the end of the block.
class Interpreter::InScope {
 public:
  InScope(Interpreter& of, std::shared_ptr<Scope> parent) : of_(of), outer_(of.scope_) {
    of_.scope_ = std::make_shared<Scope>();
    of_.scope_->parent = std::move(parent);
  }
  explicit InScope(Interpreter& of) : InScope(of, of.scope_) {}
  ~InScope() { of_.scope_ = std::move(outer_); }
  InScope(const InScope&) = delete;
  InScope& operator=(const InScope&) = delete;

 private:
  Interpreter& of_;
  std::shared_ptr<Scope> outer_;
};

// What is printed goes into a text of its own, until the end of the block.
class Interpreter::Capture {
 public:
  Capture(Interpreter& of, MarkedText& text) : of_(of), outer_(of.out_) { of_.out_ = &text; }
  ~Capture() { of_.out_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  Interpreter& of_;
  MarkedText* outer_;
};

}  // namespace kvtide::jinja
