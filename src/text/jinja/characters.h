// characters.h: texts counted in characters, as Python counts them, while they are held as UTF-8.
//
// Thread rules: free functions from any thread. Texts are valid UTF-8.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace kvtide::jinja {

inline bool begins_character(char byte) { return (byte & 0xc0) != 0x80; }

inline std::size_t character_count(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

// Byte at which each character begins, and the end.
inline std::vector<std::size_t> character_starts(std::string_view text) {
  std::vector<std::size_t> starts;
  starts.reserve(text.size() + 1);
  for (std::size_t at = 0; at < text.size(); ++at)
    if (begins_character(text[at])) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

// Byte at which character `place` begins; the end when there are fewer.
inline std::size_t byte_of_character(std::string_view text, std::size_t place) {
  std::size_t at = 0;
  for (; at < text.size(); ++at)
    if (begins_character(text[at]) && place-- == 0) break;
  return at;
}

}  // namespace kvtide::jinja
