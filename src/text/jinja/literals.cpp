#include "text/jinja/literals.h"

#include <algorithm>
#include <cstdint>

#include "text/normalize.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace kvtide::jinja {
namespace literals {
namespace {

bool is_digit(char c, int base = 10) {
  if (base == 16) return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  return c >= '0' && c < '0' + base;
}

// Digits with single underscores between them; `may_begin_with_one`: behind a prefix such as 0x.
std::size_t digits(std::string_view text, std::size_t at, int base = 10, bool may_begin_with_one = false) {
  std::size_t end = at;
  while (end < text.size()) {
    if (is_digit(text[end], base))
      ++end;
    else if (text[end] == '_' && end + 1 < text.size() && is_digit(text[end + 1], base) &&
             (end > at || may_begin_with_one))
      end += 2;
    else
      break;
  }
  return end;
}

int hex_value(char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; }

// The code point of so many hexadecimal digits behind `at`.
std::optional<char32_t> hex(std::string_view text, std::size_t at, std::size_t count) {
  if (at + count > text.size()) return std::nullopt;
  std::uint32_t value = 0;
  for (std::size_t i = at; i < at + count; ++i) {
    if (!is_digit(text[i], 16)) return std::nullopt;
    value = value << 4 | static_cast<std::uint32_t>(hex_value(text[i]));
  }
  if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return std::nullopt;
  return value;
}

// The character of an escape of one letter; 0: it is none.
char simple_escape(char c) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeant = "\a\b\f\n\r\t\v\\'\"";
  const std::size_t at = kLetters.find(c);
  return at == kLetters.npos ? '\0' : kMeant[at];
}

}  // namespace
}  // namespace literals

std::size_t name_length(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const char32_t c = utf8_at(text, at);
    const bool fits = c < 0x80 ? c == '_' || (char_class(c) & (at > 0 ? kLetter | kNumber : kLetter)) != 0
                               : is_word_character(c) && (at > 0 || (char_class(c) & kNumber) == 0);
    if (!fits) break;
    at += utf8_length(text[at]);
  }
  return at;
}

std::size_t integer_length(std::string_view text) {
  using literals::digits;
  if (text.empty() || !literals::is_digit(text[0])) return 0;
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(text[1] | 0x20);
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (base > 0) {
      const std::size_t end = digits(text, 2, base, true);
      if (end > 2) return end;
    }
  }
  if (text[0] != '0') return digits(text, 0);
  std::size_t end = 1;
  while (end < text.size() &&
         (text[end] == '0' || (text[end] == '_' && text.substr(end + 1).starts_with('0'))))
    ++end;
  return end;
}

std::size_t real_length(std::string_view text) {
  using literals::digits;
  const std::size_t whole = digits(text, 0);
  if (whole == 0) return 0;
  std::size_t end = whole;
  if (end < text.size() && text[end] == '.') {
    const std::size_t fraction = digits(text, end + 1);
    if (fraction > end + 1) end = fraction;
  }
  if (end < text.size() && (text[end] | 0x20) == 'e') {
    std::size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const std::size_t last = digits(text, exponent);
    if (last > exponent) return last;
  }
  return end > whole ? end : 0;
}

std::size_t quoted_length(std::string_view text) {
  if (text.empty() || (text[0] != '\'' && text[0] != '"')) return 0;
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '\\')
      ++at;
    else if (text[at] == text[0])
      return at + 1;
  }
  return 0;
}

std::optional<std::string> unescaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      out += text[at];
      continue;
    }
    const char kind = text[++at];
    if (const char meant = literals::simple_escape(kind)) {
      out += meant;
    } else if (kind == 'x' || kind == 'u' || kind == 'U') {
      const std::size_t count = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
      const auto code = literals::hex(text, at + 1, count);
      if (!code) return std::nullopt;
      append_utf8(out, *code);
      at += count;
    } else if (literals::is_digit(kind, 8)) {
      std::uint32_t code = 0;
      const std::size_t last = std::min(text.size(), at + 3);
      for (; at < last && literals::is_digit(text[at], 8); ++at)
        code = code * 8 + static_cast<std::uint32_t>(text[at] - '0');
      append_utf8(out, code);
      --at;
    } else if (kind == 'N') {
      return std::nullopt;
    } else if (kind != '\n') {  // a line that goes on
      out += '\\';
      out += kind;
    }
  }
  return out;
}

}  // namespace kvtide::jinja
