// text.h: building messages from parts.
//   throw Error(ErrorCode::io, cat(path, ": read failed: ", strerror));
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace kvtide {

// One part of a message, as text. Made where the message is: it looks at what it was made from.
class MessagePart {
 public:
  MessagePart(std::string_view text) : text_(text) {}
  MessagePart(const std::string& text) : text_(text) {}
  MessagePart(const char* text) : text_(text) {}
  MessagePart(char letter) : text_(digits_, 1) { digits_[0] = letter; }
  MessagePart(std::signed_integral auto number) { signed_number(number); }
  MessagePart(std::unsigned_integral auto number) { unsigned_number(number); }
  MessagePart(double number);  // six digits, as printf's %g
  MessagePart(const MessagePart&) = delete;
  MessagePart& operator=(const MessagePart&) = delete;

  std::string_view text() const { return text_; }

 private:
  void signed_number(std::int64_t number);
  void unsigned_number(std::uint64_t number);

  char digits_[32];
  std::string_view text_;
};

std::string concatenated(std::initializer_list<MessagePart> parts);

// Texts, letters and numbers in a row. For messages; not for hot paths. There are a thousand and more calls, most of other
// types than any before: what is here is compiled for each, so that it only lists the parts.
template <class... Parts>
std::string cat(const Parts&... parts) {
  return concatenated({MessagePart(parts)...});
}

std::string fixed(double value, int digits);  // "12.50": so many digits behind the point

// The text in quotes, cut to at most `limit` of its bytes, with control characters, quotes, backslashes and
// everything that is not UTF-8 escaped: valid UTF-8 and safe to print, whatever a hostile file holds.
std::string quoted(std::string_view text, std::size_t limit = 80);

// Exact matches, so that no argument type lets std::quoted win: <iomanip> brings it in by argument-dependent
// lookup, and it escapes no control character.
inline std::string quoted(const std::string& text, std::size_t limit = 80) {
  return quoted(std::string_view(text), limit);
}
inline std::string quoted(std::string& text, std::size_t limit = 80) {
  return quoted(std::string_view(text), limit);
}
inline std::string quoted(const char* text, std::size_t limit = 80) {
  return quoted(std::string_view(text), limit);
}

// The text as it stands in HTML and SVG: &, <, > and double quotes as entities.
std::string markup_text(std::string_view text);

}  // namespace kvtide
