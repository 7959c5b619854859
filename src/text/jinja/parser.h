// parser.h: from tokens to the tree of a template. Expressions and statements are in files of their own.
//
// Thread rules: belongs to one thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/syntax.h"

namespace kvtide::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  // Throws Error(bad_format) for what is no template, Error(unsupported) for tags of Jinja that chat templates do not
  // have; both name the line.
  Body parse();

 private:
  class Deeper;

  // parser.cpp
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take();
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  void expect_op(std::string_view op);
  std::string expect_name();
  [[noreturn]] void refuse(const std::string& why) const { refuse_at(now().line, why); }
  [[noreturn]] static void refuse_at(int line, const std::string& why);
  ExprPtr node(ExprKind kind, int line) const;
  static void add(ExprPtr& parent, ExprPtr child);

  // parse_expressions.cpp, in the order of precedence
  ExprPtr expression(bool with_condition = true) { return with_condition ? condition() : disjunction(); }
  ExprPtr condition();
  ExprPtr disjunction();
  ExprPtr conjunction();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters = true);
  // Operators of one level, from left to right.
  ExprPtr binary(std::initializer_list<std::pair<std::string_view, Op>> ops, ExprPtr (Parser::*side)());

  // parse_primaries.cpp
  ExprPtr primary();
  ExprPtr tuple(bool with_condition = true, bool in_parentheses = false);
  bool at_tuple_end() const;
  ExprPtr list();
  ExprPtr mapping();
  ExprPtr postfix(ExprPtr of);
  ExprPtr subscript(ExprPtr of);
  ExprPtr subscribed();
  ExprPtr call(ExprPtr of);
  void call_arguments(ExprPtr& to);
  ExprPtr filters(ExprPtr of);
  ExprPtr filter(ExprPtr of);
  ExprPtr test(ExprPtr of);

  // parse_statements.cpp
  Body body(std::initializer_list<std::string_view> ends);
  Stmt statement();
  Stmt if_statement(int line);
  Stmt for_statement(int line);
  Stmt set_statement(int line);
  Stmt macro_statement(int line);
  Stmt call_statement(int line);
  Stmt filter_statement(int line);
  Stmt with_statement(int line);
  Stmt scope_statement(int line, std::string_view end);
  Stmt jump_statement(int line, StmtKind kind);
  ExprPtr target();
  ExprPtr one_target();
  std::vector<Parameter> parameters();
  Body function_body(Stmt& owner, std::string_view end);
  void end_tag();
  void end_of(std::string_view name);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // around the statement, within the innermost macro
  // Filters and tests that there are not. What stands under a condition may name one: it fails when it is reached.
  std::vector<std::string> unknown_;
  bool saw_caller_ = false, saw_kwargs_ = false, saw_varargs_ = false;
};

// Counts how deep what is parsed lies.
class Parser::Deeper {
 public:
  explicit Deeper(Parser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMostNesting) parser_.refuse("expressions and blocks are nested too deeply");
  }
  ~Deeper() { --parser_.nesting_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Parser& parser_;
};

}  // namespace kvtide::jinja
