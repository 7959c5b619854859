// words_twice.h: a text that says the same random words twice, far apart: what heads that copy are told by.
//
// Thread rules: pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvtide/tokenizer.h"
#include "kvtide/types.h"

namespace kvtide {

struct WordsTwice {
  std::vector<TokenId> tokens;  // they end with the second copy
  Pos first = 0, second = 0;    // where the copies begin
  std::int64_t words = 0;       // of each copy, a token each
  // At the start of the second copy: only behind it is it known that words come back.
  std::int64_t settle = 0;
};

// prose: what stands around the words. Another seed gives other words and other prose.
// Throws Error(unsupported) when the vocabulary has too few plain words.
WordsTwice words_twice(const Tokenizer& tokenizer, std::span<const TokenId> prose, std::uint64_t seed);

}  // namespace kvtide
