#include "base/nearest.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace kvtide {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t columns = b.size() + 1;
  std::vector<std::size_t> table((a.size() + 1) * columns);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return table[i * columns + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = at(i - 1, j - 1) + (a[i - 1] != b[j - 1]);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  return table.back();
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> words) {
  constexpr std::size_t kLongest = 64;  // nobody mistypes a flag that long; bounds the table above
  if (word.size() > kLongest) return {};
  std::string_view best;
  std::size_t least = 1 + std::max<std::size_t>(2, word.size() / 3);
  for (const std::string_view candidate : words) {
    // A short flag is one letter behind its dash: any other one would be "near".
    if (candidate.size() <= 2 && (word.size() > 3 || candidate.size() < 2 ||
                                  (word.size() > 1 && std::tolower(word[1]) != std::tolower(candidate[1]))))
      continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace kvtide
