#include "coreml/program/mil_lexer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/text.h"
#include "text/utf8.h"

namespace kvtide::coreml {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) {
  return begins_name(c) || is_digit(c) || c == '.' || c == '@' || c == '$' || c == ':';
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

MilLexer::MilLexer(std::string_view text, std::string file) : text_(text), file_(std::move(file)) { scan(); }

MilToken MilLexer::take() {
  const MilToken taken = now_;
  scan();
  return taken;
}

bool MilLexer::skip(std::string_view sign) {
  if (!is(sign)) return false;
  scan();
  return true;
}

void MilLexer::expect(std::string_view sign) {
  if (!skip(sign)) fail_expected(quoted(sign));
}

char MilLexer::behind() const {
  const std::size_t found = text_.find_first_not_of(" \n\t\r", at_);
  return found == text_.npos ? '\0' : text_[found];
}

std::string_view MilLexer::name(std::string_view what) {
  if (now_.kind != MilToken::Kind::name) fail_expected(what);
  return take().spelling;
}

std::int64_t MilLexer::whole(std::string_view what, std::int64_t least, std::int64_t most) {
  if (now_.kind != MilToken::Kind::number) fail_expected(what);
  std::int64_t value = 0;
  const std::string_view digits = now_.spelling;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < least || value > most)
    fail_expected(cat(what, " between ", least, " and ", most));
  scan();
  return value;
}

std::string MilLexer::text(std::string_view what) {
  if (now_.kind != MilToken::Kind::text) fail_expected(what);
  const std::string_view raw = now_.spelling;
  std::string out;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\') {
      out += raw[i];
      continue;
    }
    const char escape = raw[++i];  // scan_text: a backslash has a byte behind it
    constexpr std::string_view kLetters = "\\\"'ntr0", kMeant("\\\"'\n\t\r\0", 7);
    if (const std::size_t known = kLetters.find(escape); known != kLetters.npos) {
      out += kMeant[known];
      continue;
    }
    const int high = escape == 'x' && i + 2 < raw.size() ? hex_digit(raw[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(raw[i + 2]) : -1;
    if (low < 0) fail(cat("a text holds the escape ", quoted(raw.substr(i - 1, 2)), ", which is not known"));
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (const auto bad = find_invalid_utf8(out)) fail(cat("a text is no UTF-8 at its byte ", *bad));
  scan();
  return out;
}

void MilLexer::fail(const std::string& why, ErrorCode code) const {
  const std::size_t before = now_.at == 0 ? text_.npos : text_.rfind('\n', now_.at - 1);
  const std::size_t column = now_.at - (before == text_.npos ? 0 : before + 1) + 1;
  throw Error(code, cat(file_, ": line ", now_.line, ", column ", column, ": ",
                        subject_.empty() ? "" : cat(quoted(subject_), ": "), why));
}

void MilLexer::fail_expected(std::string_view what) const {
  const bool end = now_.kind == MilToken::Kind::end;
  fail(cat(what, " is missing before ", end ? "the end of the text" : quoted(now_.spelling, 24)));
}

void MilLexer::skip_space() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') ++line_;
    if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ++at_;
    } else {
      return;
    }
  }
}

// The end of a text in quotes; an escape may hide a quote.
void MilLexer::scan_text() {
  const std::size_t begin = ++at_;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') at_ += text_[at_] == '\\' ? 2 : 1;
  if (at_ >= text_.size() || text_[at_] != '"') fail("a text in quotes does not end on its line");
  now_.kind = MilToken::Kind::text;
  now_.spelling = text_.substr(begin, at_ - begin);
  ++at_;
}

void MilLexer::scan() {
  skip_space();
  now_ = {MilToken::Kind::end, {}, at_, line_};
  if (at_ == text_.size()) return;
  const std::size_t begin = at_;
  const char c = text_[at_];
  const auto rest = [&](std::size_t ahead) { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; };
  if (c == '"') return scan_text();
  if (begins_name(c)) {
    now_.kind = MilToken::Kind::name;
    while (at_ < text_.size() && continues_name(text_[at_])) ++at_;
  } else if (is_digit(c) || ((c == '-' || c == '+' || c == '.') && rest(1) != '>' && rest(1) != '.')) {
    // With letters: 0x1.8p-3, 1e-05, -inf. A sign behind p or e belongs to the number.
    now_.kind = MilToken::Kind::number;
    const bool hex = c == '0' && (rest(1) == 'x' || rest(1) == 'X');
    const bool signed_hex = (c == '-' || c == '+') && rest(1) == '0' && (rest(2) == 'x' || rest(2) == 'X');
    for (++at_; at_ < text_.size(); ++at_) {
      const char d = text_[at_], before = text_[at_ - 1];
      const bool exponent =
          hex || signed_hex ? before == 'p' || before == 'P' : before == 'e' || before == 'E';
      if (!is_digit(d) && !begins_name(d) && d != '.' && !((d == '-' || d == '+') && exponent)) break;
    }
  } else {
    now_.kind = MilToken::Kind::sign;
    constexpr std::string_view kSigns = "(){}[]<>,;=?";
    if (c == '-' || (c == '.' && rest(1) == '.' && rest(2) == '.'))
      at_ += c == '-' ? 2 : 3;  // -> and ...
    else if (kSigns.find(c) != kSigns.npos)
      ++at_;
    else
      fail(cat("the sign ", quoted(text_.substr(at_, 1)), " belongs to no MIL text"));
  }
  now_.spelling = text_.substr(begin, at_ - begin);
}

}  // namespace kvtide::coreml
