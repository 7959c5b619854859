// Blocks of a template.
#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/parser.h"

namespace kvtide::jinja {

Body Parser::parse() {
  Body all = body({});
  if (!unknown_.empty()) throw Error(ErrorCode::unsupported, "chat template, " + unknown_.front());
  return all;
}

// Up to a tag that begins with one of these names, which is left for the caller; the outermost ends with the template.
Body Parser::body(std::initializer_list<std::string_view> ends) {
  const Deeper deeper(*this);
  Body all;
  for (;;) {
    const Token& token = now();
    switch (token.kind) {
      case TokenKind::end:
        if (ends.size() > 0) refuse(cat("the template ends where '", *(ends.end() - 1), "' is missing"));
        return all;
      case TokenKind::data:
        all.emplace_back();
        all.back().line = token.line;
        all.back().text = take().text;
        break;
      case TokenKind::print_begin: {
        all.emplace_back();
        all.back().kind = StmtKind::print;
        all.back().line = take().line;
        all.back().value = tuple();
        if (now().kind != TokenKind::print_end) refuse(cat("expected '}}', got ", shown(now())));
        take();
        break;
      }
      default:
        take();
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return now().is_name(end); }))
          return all;
        all.push_back(statement());
        break;
    }
  }
}

void Parser::end_tag() {
  if (now().kind != TokenKind::block_end) refuse(cat("expected '%}', got ", shown(now())));
  take();
}

void Parser::end_of(std::string_view name) {
  if (!skip_name(name)) refuse(cat("expected '", name, "', got ", shown(now())));
  end_tag();
}

Stmt Parser::statement() {
  const int line = now().line;
  const std::string name = expect_name();
  if (name == "if") return if_statement(line);
  if (name == "for") return for_statement(line);
  if (name == "set") return set_statement(line);
  if (name == "macro") return macro_statement(line);
  if (name == "call") return call_statement(line);
  if (name == "filter") return filter_statement(line);
  if (name == "with") return with_statement(line);
  if (name == "generation") return scope_statement(line, "endgeneration");
  if (name == "break") return jump_statement(line, StmtKind::break_);
  if (name == "continue") return jump_statement(line, StmtKind::continue_);
  constexpr std::string_view kKnown[] = {"include", "import",     "from", "extends",
                                         "block",   "autoescape", "do",   "trans"};
  if (std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown))
    throw Error(ErrorCode::unsupported,
                cat("chat template, line ", line, ": a chat template stands alone and has no '", name, "'"));
  refuse_at(line, cat("there is no tag named ", quoted(name)));
}

Stmt Parser::if_statement(int line) {
  const Deeper deeper(*this);
  Stmt made(StmtKind::if_, line);
  const std::size_t unknown = unknown_.size();
  made.value = tuple(false);
  end_tag();
  made.body = body({"elif", "else", "endif"});
  // Branches are kept one in another, without nesting: a long chain takes no more stack than its longest branch.
  Stmt* last = &made;
  while (now().is_name("elif")) {
    Stmt branch(StmtKind::if_, take().line);
    branch.value = tuple(false);
    end_tag();
    branch.body = body({"elif", "else", "endif"});
    if (made.otherwise.size() >= 1000) refuse("an if has more than 1,000 branches");
    made.otherwise.push_back(std::move(branch));
    last = &made;
  }
  if (skip_name("else")) {
    end_tag();
    Stmt branch(StmtKind::if_, line);
    branch.body = body({"endif"});
    last->otherwise.push_back(std::move(branch));
  }
  end_of("endif");
  unknown_.resize(unknown);
  return made;
}

Stmt Parser::for_statement(int line) {
  Stmt made(StmtKind::for_, line);
  made.target = target();
  if (!skip_name("in")) refuse(cat("expected 'in', got ", shown(now())));
  made.value = tuple(false);
  if (skip_name("if")) made.condition = expression();
  if (now().is_name("recursive"))
    throw Error(ErrorCode::unsupported,
                cat("chat template, line ", line, ": loops that call themselves are not supported"));
  end_tag();
  ++loops_;
  made.body = body({"endfor", "else"});
  --loops_;
  if (skip_name("else")) {
    end_tag();
    made.otherwise = body({"endfor"});
  }
  end_of("endfor");
  return made;
}

ExprPtr Parser::one_target() {
  if (now().is_op("(")) {
    const Deeper deeper(*this);
    take();
    ExprPtr inside = target();
    expect_op(")");
    return inside;
  }
  const int line = now().line;
  ExprPtr made = node(ExprKind::name, line);
  made->name = expect_name();
  constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), made->name) != std::end(kConstants))
    refuse_at(line, cat("nothing can be assigned to '", made->name, "'"));
  return made;
}

ExprPtr Parser::target() {
  ExprPtr first = one_target();
  if (!now().is_op(",")) return first;
  ExprPtr all = node(ExprKind::tuple, first->line);
  add(all, std::move(first));
  while (skip_op(",") && (now().kind == TokenKind::name || now().is_op("(")) && !now().is_name("in"))
    add(all, one_target());
  return all;
}

Stmt Parser::set_statement(int line) {
  Stmt made(StmtKind::set, line);
  if (now().kind == TokenKind::name && ahead().is_op(".")) {
    made.name = take().text;
    take();
    made.text = expect_name();
  } else {
    made.target = target();
  }
  if (skip_op("=")) {
    made.value = tuple();
    end_tag();
    return made;
  }
  made.kind = StmtKind::set_block;
  while (skip_op("|")) made.value = filter(std::move(made.value));
  end_tag();
  made.body = body({"endset"});
  end_of("endset");
  return made;
}

std::vector<Parameter> Parser::parameters() {
  std::vector<Parameter> all;
  expect_op("(");
  while (!now().is_op(")")) {
    if (!all.empty()) expect_op(",");
    Parameter parameter{expect_name(), nullptr};
    if (skip_op("="))
      parameter.fallback = expression();
    else if (!all.empty() && all.back().fallback != nullptr)
      refuse("a parameter without a default stands behind one that has a default");
    all.push_back(std::move(parameter));
  }
  expect_op(")");
  return all;
}

// The body of a macro or of a call: loops outside of it do not reach into it.
Body Parser::function_body(Stmt& owner, std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  const bool caller = std::exchange(saw_caller_, false), kwargs = std::exchange(saw_kwargs_, false);
  const bool varargs = std::exchange(saw_varargs_, false);
  Body inside = body({end});
  end_of(end);
  owner.uses_caller = saw_caller_;
  owner.uses_kwargs = saw_kwargs_;
  owner.uses_varargs = saw_varargs_;
  saw_caller_ |= caller;
  saw_kwargs_ |= kwargs;
  saw_varargs_ |= varargs;
  loops_ = loops;
  return inside;
}

Stmt Parser::macro_statement(int line) {
  Stmt made(StmtKind::macro, line);
  made.name = expect_name();
  made.parameters = parameters();
  end_tag();
  made.body = function_body(made, "endmacro");
  return made;
}

Stmt Parser::call_statement(int line) {
  Stmt made(StmtKind::call_block, line);
  made.name = "caller";
  if (now().is_op("(")) made.parameters = parameters();
  made.value = expression();
  if (made.value->kind != ExprKind::call) refuse_at(line, "expected a call of a macro");
  end_tag();
  made.body = function_body(made, "endcall");
  return made;
}

Stmt Parser::filter_statement(int line) {
  Stmt made(StmtKind::filter_block, line);
  made.value = filter(nullptr);
  while (skip_op("|")) made.value = filter(std::move(made.value));
  end_tag();
  made.body = body({"endfilter"});
  end_of("endfilter");
  return made;
}

Stmt Parser::with_statement(int line) {
  Stmt made(StmtKind::with, line);
  while (now().kind != TokenKind::block_end) {
    if (!made.parameters.empty()) expect_op(",");
    Parameter parameter{expect_name(), nullptr};
    expect_op("=");
    parameter.fallback = expression();
    made.parameters.push_back(std::move(parameter));
  }
  end_tag();
  made.body = body({"endwith"});
  end_of("endwith");
  return made;
}

Stmt Parser::scope_statement(int line, std::string_view end) {
  Stmt made(StmtKind::scope, line);
  end_tag();
  made.body = function_body(made, end);
  return made;
}

Stmt Parser::jump_statement(int line, StmtKind kind) {
  if (loops_ == 0) refuse_at(line, "'break' and 'continue' have a meaning only in a loop");
  Stmt made(kind, line);
  end_tag();
  return made;
}

}  // namespace kvtide::jinja
