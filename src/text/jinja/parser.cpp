#include "text/jinja/parser.h"

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::jinja {

void Parser::refuse_at(int line, const std::string& why) {
  throw Error(ErrorCode::bad_format, cat("chat template, line ", line, ": ", why));
}

Token Parser::take() {
  Token token = now();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_name(std::string_view name) {
  if (!now().is_name(name)) return false;
  take();
  return true;
}

bool Parser::skip_op(std::string_view op) {
  if (!now().is_op(op)) return false;
  take();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) refuse(cat("expected '", op, "', got ", shown(now())));
}

std::string Parser::expect_name() {
  if (now().kind != TokenKind::name) refuse(cat("expected a name, got ", shown(now())));
  return take().text;
}

ExprPtr Parser::node(ExprKind kind, int line) const {
  auto made = std::make_unique<Expr>();
  made->kind = kind;
  made->line = line;
  return made;
}

void Parser::add(ExprPtr& parent, ExprPtr child) {
  if (child != nullptr && child->depth >= parent->depth) {
    parent->depth = child->depth + 1;
    if (parent->depth > kMostNesting) refuse_at(parent->line, "an expression is nested too deeply");
  }
  parent->items.push_back(std::move(child));
}

}  // namespace kvtide::jinja
