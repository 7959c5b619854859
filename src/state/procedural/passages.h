// passages.h: what the passages of a text are worth, where only some of them can stay.
//
// A passage is kPassage tokens that stand together. What a text says with words that it hardly uses cannot be guessed from
// the rest of it, so passages of rare tokens stay longest.
#pragma once

#include <span>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

inline constexpr Pos kPassage = 16;

// Of every passage that ends within `tokens`, the text so far: the mean of ln(tokens / times that this token stands there),
// or the mean over it and a neighbour if that is more: what is said often goes over the edge of a passage.
std::vector<double> rarity_of_passages(std::span<const TokenId> tokens);

}  // namespace kvtide
