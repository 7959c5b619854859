// text.h: building messages from parts.
//   throw Error(ErrorCode::io, cat(path, ": read failed: ", strerror));
#pragma once

#include <sstream>
#include <string_view>
#include <string>

namespace kvtide {

// Concatenates anything that can be streamed. For messages; not for hot paths.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// The text with control characters and quotes escaped and cut to `limit` bytes: safe to print in a message whatever
// a hostile file put into a name.
std::string quoted(std::string_view text, std::size_t limit = 80);

}  // namespace kvtide
