// flag_values.h: values of flags as numbers and choices, with a message that says what would be right.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

constexpr std::int64_t kLargestCount = std::int64_t{1} << 31;  // no text, context or memory has more tokens

// What a flag's setter is told: how the user wrote the flag, and its value ("" for a switch).
struct Given {
  std::string_view flag;
  const std::string& value;
};

// Counts may end in K (1,024) or M.
// Throw Error(invalid_argument): "-t: the number of threads must be a whole number from 1 to 256, not '0'".
// others: what would be right beside a number, as it is to stand behind the range.
std::int64_t whole(const Given& given, std::string_view what, std::int64_t low, std::int64_t high,
                   std::string_view others = "");
float real(const Given& given, std::string_view what, float low, float high);
std::vector<std::int64_t> whole_list(const Given& given, std::string_view what, std::int64_t low,
                                     std::int64_t high);
// "64M", "1.5G", "65536"; also "64MB", "64 MiB": every unit is a power of 1024, with or without B or iB.
std::int64_t bytes(const Given& given, std::string_view what, std::int64_t low);
ElementType element_type(const Given& given);
std::string one_of(const Given& given, std::string_view what, std::span<const std::string_view> words);
inline std::string one_of(const Given& given, std::string_view what,
                          std::initializer_list<std::string_view> words) {
  return one_of(given, what, std::span(words.begin(), words.size()));
}
// What one of these words stands for: one_of<bool>(given, "it", {{"on", true}, {"off", false}}).
template <class T>
T one_of(const Given& given, std::string_view what,
         std::initializer_list<std::pair<std::string_view, T>> words) {
  std::vector<std::string_view> known;
  for (const auto& [word, value] : words) known.push_back(word);
  const std::string chosen = one_of(given, what, std::span<const std::string_view>(known));
  for (const auto& [word, value] : words)
    if (chosen == word) return value;
  return words.begin()->second;  // never reached: one_of returns one of the words
}
std::string path_of(const Given& given);  // not empty

// A value that may be given once: a second one would take the first one's place without a word. Throws
// Error(invalid_argument) that names both.
void set_once(std::optional<std::string>& target, const Given& given);

}  // namespace kvtide
