#include "text/jinja/spaces.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace kvtide::jinja {

// White_Space and the four ASCII separators.
bool is_python_space(char32_t c) { return (char_class(c) & kSpace) != 0 || (c >= 0x1c && c <= 0x1f); }

std::size_t leading_spaces(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && is_python_space(utf8_at(text, at))) at += utf8_length(text[at]);
  return at;
}

std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xc0) == 0x80) --at;
  return at;
}

std::size_t trailing_spaces(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t start = last_character(text.substr(0, end));
    if (!is_python_space(utf8_at(text, start))) break;
    end = start;
  }
  return text.size() - end;
}

}  // namespace kvtide::jinja
