// syntax.h: the tree of a template.
//
// Ownership: a node owns what is below it. Thread rules: constant once it is parsed.
// Invariant: no node lies deeper than kMostNesting, so walking and freeing a tree takes a bounded stack.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/object.h"
#include "text/jinja/value.h"

namespace kvtide::jinja {

inline constexpr int kMostNesting = 150;

enum class ExprKind {
  constant,
  name,
  list,
  tuple,
  mapping,    // items: key, value, key, value ...
  attribute,  // items[0].name
  item,       // items[0][items[1]]
  slice,      // items[0][items[1]:items[2]:items[3]], where each but the first may be nullptr
  call,       // items[0](items[1] ..., named ...)
  filter,     // items[0] | name(items[1] ..., named ...); items[0] is nullptr in a block
  test,       // items[0] is name(items[1] ..., named ...)
  not_,
  negative,
  positive,
  binary,  // items[0] op items[1]
  concat,  // all of them, with ~
  and_,
  or_,
  compare,    // items[0] ops[0] items[1] ops[1] items[2] ...
  condition,  // items[1] if items[0] else items[2], which may be nullptr
};

enum class Op {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  in,
  not_in
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::constant;
  int line = 1;
  int depth = 1;
  Value constant = nullptr;
  std::string name;
  std::vector<ExprPtr> items;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr spread, named_spread;  // *args, **kwargs
  std::vector<Op> ops;
  Native function = nullptr;  // of a filter or test
};

enum class StmtKind {
  text,
  print,
  if_,           // value; body; otherwise, which holds an if_ for elif
  for_,          // target in value if condition; body; otherwise
  set,           // target = value
  set_block,     // target = body, through the filters of value
  macro,         // name, parameters; body
  call_block,    // value calls; parameters; body
  filter_block,  // body through the filters of value
  with,          // parameters with their values; body
  scope,         // body
  break_,
  continue_,
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Parameter {
  std::string name;
  ExprPtr fallback;  // nullptr: none
};

struct Stmt {
  Stmt() = default;
  Stmt(StmtKind kind_, int line_) : kind(kind_), line(line_) {}

  StmtKind kind = StmtKind::text;
  int line = 1;
  std::string name, text;  // of set to an attribute of a namespace: `name`.`text`
  ExprPtr target, value, condition;
  std::vector<Parameter> parameters;
  Body body, otherwise;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;  // of a macro
};

}  // namespace kvtide::jinja
