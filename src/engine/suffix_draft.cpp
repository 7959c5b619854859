#include "engine/suffix_draft.h"

namespace kvtide {

std::vector<TokenId> draft_by_suffix(std::span<const TokenId> history, std::int64_t most,
                                     std::int64_t least) {
  const auto size = static_cast<std::int64_t>(history.size());
  const auto at = [&](std::int64_t i) { return history[static_cast<std::size_t>(i)]; };
  std::int64_t best = 0, behind = 0;  // length of the longest suffix found, and where its continuation begins
  for (std::int64_t end = size - 1; end >= 1 && best < kLongestSuffix; --end) {
    std::int64_t length = 0;
    while (length < kLongestSuffix && length < end && at(end - 1 - length) == at(size - 1 - length)) ++length;
    if (length > best) {
      best = length;
      behind = end;
    }
  }
  std::vector<TokenId> guess;
  if (best < std::max<std::int64_t>(1, least)) return guess;
  for (std::int64_t i = 0; i < most; ++i) {
    const std::int64_t source = behind + i;
    guess.push_back(source < size ? at(source) : guess[static_cast<std::size_t>(source - size)]);
  }
  return guess;
}

}  // namespace kvtide
