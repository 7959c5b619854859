// suffix_draft.h: guesses how a text goes on from what it said before: the longest end of the text that stood
// in it earlier, and what came behind it there. A pure function, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

inline constexpr std::int64_t kLongestSuffix = 8;  // tokens that are compared

// Up to `most` tokens behind `history`; none when its last token is new in it. Of equally long suffixes the
// newest counts. A guess that reaches the end of the history goes on with the guess itself.
std::vector<TokenId> draft_by_suffix(std::span<const TokenId> history, std::int64_t most);

}  // namespace kvtide
