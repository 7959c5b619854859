// recall.h: a text with a pass key and a list of random pairs at one depth, both asked for at its end.
//
// The pass key (five digits, said twice) is what any memory of the place recalls; the pairs ("The code of
// lamp is river.") are the hard case: a question has to find one line among many alike. Answers count as
// right when every token of them is the most likely one. Pure functions of tokenizer, filler and options.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvtide/tokenizer.h"
#include "kvtide/types.h"

namespace kvtide {

struct RecallOptions {
  std::int64_t length = 4096;  // of the whole text, tokens
  double depth = 0.5;          // where things stand, as a share of the filler
  std::int64_t pairs = 8;
  std::uint64_t seed = 1;
};

struct RecallText {
  std::vector<TokenId> tokens;  // exactly `length`
  Pos position = 0;             // of the pass key's sentence
  PosRange key;                 // the digits that are asked for
  std::vector<PosRange> pairs;  // the values that are asked for
  std::vector<PosRange> asked() const;
};

// Throws Error: unsupported when the vocabulary has too few plain words, invalid_argument when the length has
// no room for what is planted (naming the smallest that has) or the filler is too short (naming both
// numbers).
RecallText plant_recall(const Tokenizer& tokenizer, std::span<const TokenId> filler,
                        const RecallOptions& options);

// -ln p of a random word that nobody remembers: a guess among the vocabulary's plain words.
double word_chance(const Tokenizer& tokenizer);

}  // namespace kvtide
