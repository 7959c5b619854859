#include "base/text.h"

#include <charconv>
#include <cstddef>
#include <iomanip>
#include <sstream>
#include <utility>

namespace kvtide {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

// Length of the printable character that starts at `i`: 1 for plain ASCII, 2 to 4 for a well-formed UTF-8
// sequence that is no control character, 0 for anything else.
std::size_t printable_at(std::string_view text, std::size_t i) {
  const unsigned first = byte_at(text, i);
  if (first < 0x80) return first >= 0x20 && first != 0x7f && first != '\'' && first != '\\' ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || i + length > text.size()) return 0;
  for (std::size_t k = 1; k < length; ++k)
    if ((byte_at(text, i + k) & 0xc0) != 0x80) return 0;
  const unsigned second = byte_at(text, i + 1);
  if (first == 0xc2 && second < 0xa0) return 0;  // U+0080 to U+009F: controls
  if ((first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90)) return 0;  // overlong
  if (first == 0xed && second >= 0xa0) return 0;                                       // surrogates
  if (first == 0xf4 && second >= 0x90) return 0;                                       // above U+10FFFF
  return length;
}

}  // namespace

void MessagePart::signed_number(std::int64_t number) {
  text_ = {digits_, std::to_chars(digits_, std::end(digits_), number).ptr};
}

void MessagePart::unsigned_number(std::uint64_t number) {
  text_ = {digits_, std::to_chars(digits_, std::end(digits_), number).ptr};
}

MessagePart::MessagePart(double number)
    : text_(digits_, std::to_chars(digits_, std::end(digits_), number, std::chars_format::general, 6).ptr) {}

std::string concatenated(std::initializer_list<MessagePart> parts) {
  std::size_t size = 0;
  for (const MessagePart& part : parts) size += part.text().size();
  std::string text;
  text.reserve(size);
  for (const MessagePart& part : parts) text += part.text();
  return text;
}

std::string quoted(std::string_view text, std::size_t limit) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t printable = printable_at(text, i);
    const std::size_t length = printable == 0 ? 1 : printable;
    if (i + length > limit) return out + "...'";
    if (printable != 0) {
      out += text.substr(i, length);
    } else {
      out += "\\x";
      out += kHex[byte_at(text, i) >> 4];
      out += kHex[byte_at(text, i) & 15];
    }
    i += length;
  }
  return out + "'";
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out.exceptions(std::ios_base::badbit);
  out << std::fixed << std::setprecision(digits) << value;
  return std::move(out).str();
}

std::string markup_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

}  // namespace kvtide
