// text.h: building messages from parts.
//   throw Error(ErrorCode::io, cat(path, ": read failed: ", strerror));
#pragma once

#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace kvtide {

// Concatenates anything that can be streamed. For messages; not for hot paths. Throws std::bad_alloc: a
// stream on its own would leave the rest of the text out.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  out.exceptions(std::ios_base::badbit);
  ((out << parts), ...);
  return std::move(out).str();
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
