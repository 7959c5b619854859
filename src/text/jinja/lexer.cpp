#include "text/jinja/lexer.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
#include "text/jinja/literals.h"
#include "text/jinja/spaces.h"
#include "text/utf8.h"

namespace kvtide::jinja {
namespace {

// Line ends as line feeds, without the one at the end of the file.
std::string plain_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r' && source.substr(at + 1).starts_with('\n')) continue;
    out += source[at] == '\r' ? '\n' : source[at];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> read() {
    while (at_ < source_.size()) read_data();
    tokens_.push_back({TokenKind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  struct Tag {
    std::size_t at = std::string::npos;
    char kind = 0;         // '%', '{' or '#'
    char strip = 0;        // '-', '+' or 0
    std::size_t body = 0;  // where its inside begins
    bool is_raw = false;
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::bad_format, cat("chat template, line ", line_, ": ", why));
  }

  std::string_view rest(std::size_t from) const { return std::string_view(source_).substr(from); }

  void go_to(std::size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  // The end of a tag such as "%}", at `at`; npos: it is not there. Strips what it asks to.
  std::size_t tag_end(std::size_t at, std::string_view close, bool trims) const {
    const std::string_view text = rest(at);
    if (text.starts_with('-') && text.substr(1).starts_with(close)) {
      const std::size_t end = at + 1 + close.size();
      return end + leading_spaces(rest(end));
    }
    if (close != "}}" && text.starts_with('+') && text.substr(1).starts_with(close))
      return at + 1 + close.size();
    if (!text.starts_with(close)) return std::string::npos;
    const std::size_t end = at + close.size();
    return trims && rest(end).starts_with('\n') ? end + 1 : end;
  }

  // {% raw %} is found by its whole tag: what is behind it is no template.
  std::size_t raw_begin_end(std::size_t body) const {
    std::size_t at = body + leading_spaces(rest(body));
    if (!rest(at).starts_with("raw")) return std::string::npos;
    at += 3;
    at += leading_spaces(rest(at));
    return rest(at).starts_with('+') ? std::string::npos : tag_end(at, "%}", false);
  }

  Tag next_tag() const {
    Tag tag;
    for (std::size_t at = source_.find('{', at_); at != std::string::npos; at = source_.find('{', at + 1)) {
      const char kind = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (kind != '%' && kind != '{' && kind != '#') continue;
      tag.at = at;
      tag.kind = kind;
      tag.body = at + 2;
      const char sign = tag.body < source_.size() ? source_[tag.body] : '\0';
      if (sign == '-' || sign == '+') {
        tag.strip = sign;
        ++tag.body;
      }
      tag.is_raw = kind == '%' && raw_begin_end(tag.body) != std::string::npos;
      break;
    }
    return tag;
  }

  void put_data(std::size_t begin, std::size_t end) {
    if (end > begin) tokens_.push_back({TokenKind::data, source_.substr(begin, end - begin), line_});
  }

  // Where the text before a tag ends.
  std::size_t stripped(std::size_t end, char strip, bool is_block) const {
    const std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (strip == '-') return end - trailing_spaces(text);
    if (strip == '+' || !is_block) return end;
    const std::size_t line = text.rfind('\n');
    const std::size_t first = line == text.npos ? 0 : line + 1;
    const bool starts_line = first > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    return starts_line && leading_spaces(text.substr(first)) == text.size() - first ? at_ + first : end;
  }

  void read_data() {
    const Tag tag = next_tag();
    if (tag.at == std::string::npos) {
      put_data(at_, source_.size());
      return go_to(source_.size());
    }
    put_data(at_, stripped(tag.at, tag.strip, tag.kind != '{'));
    go_to(tag.at);
    if (tag.kind == '#') return skip_comment(tag.body);
    if (tag.is_raw) return read_raw(raw_begin_end(tag.body));
    const bool is_block = tag.kind == '%';
    tokens_.push_back({is_block ? TokenKind::block_begin : TokenKind::print_begin, "", line_});
    go_to(tag.body);
    read_inside(is_block ? "%}" : "}}", is_block);
  }

  void skip_comment(std::size_t from) {
    const std::size_t close = source_.find("#}", from);
    if (close == std::string::npos) refuse("a comment does not end; '#}' is missing");
    const bool has_sign = close > from && (source_[close - 1] == '-' || source_[close - 1] == '+');
    go_to(tag_end(has_sign ? close - 1 : close, "#}", true));
  }

  void read_raw(std::size_t from) {
    const int line = line_;
    go_to(from);
    for (std::size_t at = source_.find("{%", at_); at != std::string::npos; at = source_.find("{%", at + 1)) {
      std::size_t inside = at + 2;
      const char sign = inside < source_.size() ? source_[inside] : '\0';
      if (sign == '-' || sign == '+') ++inside;
      inside += leading_spaces(rest(inside));
      if (!rest(inside).starts_with("endraw")) continue;
      inside += 6;
      inside += leading_spaces(rest(inside));
      const std::size_t end = tag_end(inside, "%}", true);
      if (end == std::string::npos) continue;
      put_data(at_, stripped(at, sign, true));
      return go_to(end);
    }
    line_ = line;
    refuse("'raw' does not end; '{% endraw %}' is missing");
  }

  void read_inside(std::string_view close, bool trims) {
    const int line = line_;
    std::string open;  // brackets
    while (at_ < source_.size()) {
      if (open.empty()) {
        const std::size_t end = tag_end(at_, close, trims);
        if (end != std::string::npos) {
          tokens_.push_back({close == "%}" ? TokenKind::block_end : TokenKind::print_end, "", line_});
          return go_to(end);
        }
      }
      if (const std::size_t spaces = leading_spaces(rest(at_)))
        go_to(at_ + spaces);
      else
        read_word(open);
    }
    line_ = line;
    refuse(cat("a tag does not end; '", close, "' is missing"));
  }

  void put(TokenKind kind, std::size_t length) {
    tokens_.push_back({kind, source_.substr(at_, length), line_});
    go_to(at_ + length);
  }

  void read_word(std::string& open) {
    const std::string_view text = rest(at_);
    const bool behind_point = at_ > 0 && source_[at_ - 1] == '.';
    if (const std::size_t length = behind_point ? 0 : real_length(text)) return put(TokenKind::real, length);
    if (const std::size_t length = integer_length(text)) return put(TokenKind::integer, length);
    if (const std::size_t length = name_length(text)) return put(TokenKind::name, length);
    if (const std::size_t length = quoted_length(text)) {
      auto meant = unescaped(text.substr(1, length - 2));
      if (!meant)
        refuse("a text has an escape that names no character; \\xHH, \\uHHHH and \\n are some that do");
      tokens_.push_back({TokenKind::text, std::move(*meant), line_});
      return go_to(at_ + length);
    }
    read_operator(text, open);
  }

  void read_operator(std::string_view text, std::string& open) {
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view op : kTwo)
      if (text.starts_with(op)) return put(TokenKind::op, 2);
    if (text[0] == '\'' || text[0] == '"') refuse("a text in quotes does not end");
    if (kOne.find(text[0]) == kOne.npos)
      refuse(cat("unexpected ", quoted(text.substr(0, std::min(text.size(), utf8_length(text[0]))))));
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (kOpen.find(text[0]) != kOpen.npos) open += text[0];
    if (const std::size_t which = kClose.find(text[0]); which != kClose.npos) {
      if (open.empty() || open.back() != kOpen[which])
        refuse(cat("unexpected '", text.substr(0, 1), "'",
                   open.empty() ? "" : cat(", '", kClose[kOpen.find(open.back())], "' was expected")));
      open.pop_back();
    }
    put(TokenKind::op, 1);
  }

  std::string source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> read_tokens(std::string_view source) {
  require_utf8(source, "chat template");
  return Lexer(plain_lines(source)).read();
}

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "end of the template";
    case TokenKind::data:
      return "text of the template";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::print_begin:
      return "'{{'";
    case TokenKind::print_end:
      return "'}}'";
    default:
      return quoted(token.text, 40);
  }
}

}  // namespace kvtide::jinja
