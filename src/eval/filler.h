// filler.h: plain prose to hide things in, for whoever has no text at hand.
//
// Short sentences of everyday words, put together at random from a few lists by a seed: no sentence says
// anything that helps to foresee a plant. A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "kvtide/tokenizer.h"
#include "kvtide/types.h"

namespace kvtide {

// At least `tokens` tokens. Throws Error(unsupported) when the vocabulary spells nothing of it.
std::vector<TokenId> filler_prose(const Tokenizer& tokenizer, std::int64_t tokens, std::uint64_t seed = 1);

}  // namespace kvtide
