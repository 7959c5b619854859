// lexer.h: the source of a template as tokens: text, and the words between its tags.
//
// White space is controlled as in the environment that chat templates are written for: the first line feed behind a
// block or comment goes (trim_blocks), so does the white space before one on its line (lstrip_blocks), and `-`
// strips to the next text on its side.
// Thread rules: free functions from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvtide::jinja {

enum class TokenKind {
  data,
  block_begin,
  block_end,
  print_begin,
  print_end,
  name,
  integer,
  real,
  text,
  op,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // of a text: its characters, without quotes and escapes
  int line = 1;

  bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
  bool is_op(std::string_view op) const { return kind == TokenKind::op && text == op; }
};

// The last token is an `end`. Throws Error(bad_format) that names the line, and Error(bad_text) for what is not UTF-8.
std::vector<Token> read_tokens(std::string_view source);

// "end of template", "'endfor'": for messages.
std::string shown(const Token& token);

}  // namespace kvtide::jinja
