// marked_text.h: a text that remembers which of its bytes a conversation brought in.
//
// A control marker that a user typed must not act as one. So every byte of a message is marked as given, and marks
// travel along when a template cuts and joins texts. Literals of the template carry no mark.
// Invariant: the text is valid UTF-8; marks are sorted, do not touch each other, and lie inside the text.
// Thread rules: a plain value.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvtide::jinja {

struct ByteRange {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

struct MarkedText {
  std::string bytes;
  std::vector<ByteRange> given;
  bool escaped = false;  // came from the filter `safe` or `escape`: `+` escapes what is added to it

  MarkedText() = default;
  MarkedText(std::string text) : bytes(std::move(text)) {}
  MarkedText(std::string_view text) : bytes(text) {}
  MarkedText(const char* text) : bytes(text) {}

  // A text all of which the conversation brought.
  static MarkedText all_given(std::string text);
  // The same marks for a text that was made from `source` in a way that does not say where its bytes went.
  static MarkedText made_from(const MarkedText& source, std::string text);

  std::size_t size() const { return bytes.size(); }
  bool empty() const { return bytes.empty(); }
  std::string_view view() const { return bytes; }
  bool has_given() const { return !given.empty(); }

  void append(std::string_view text) { bytes += text; }
  void append(const std::string& text) { bytes += text; }
  void append(const char* text) { bytes += text; }
  void append(const MarkedText& text) { append(text, 0, text.size()); }
  // The bytes [begin, end) of another text.
  void append(const MarkedText& text, std::size_t begin, std::size_t end);
  MarkedText part(std::size_t begin, std::size_t end) const;
};

}  // namespace kvtide::jinja
