// planted_text.h: a text with things to remember, and questions about them at the end.
//
// Random strings of plain words and a pass key are put into a filler text; the tail begins each string again,
// and what matters is how well the model goes on: -ln p per token of the last part of a string (copy test) or
// of the digits (pass key). Without a memory of the place a random word costs about 11 nats.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvtide/tokenizer.h"
#include "kvtide/types.h"

namespace kvtide {

struct Plant {
  std::string name;               // "copy 7%", "pass key 20%"
  Pos position = 0;               // where it stands
  PosRange asked;                 // targets that show whether it was remembered
  std::vector<PosRange> outside;  // everything that is not the filler: not part of a perplexity
};

struct PlantedText {
  std::vector<TokenId> tokens;
  std::vector<Plant> plants;
  std::vector<PosRange> outside() const;  // of all plants
};

struct PlantOptions {
  std::vector<double> copies = {0.07, 0.35, 0.63};  // places, as shares of the filler
  std::vector<double> keys = {0.2};
  std::uint64_t seed = 1;
};

// Of a piece inside a text: no token before it, no special tokens in it.
inline constexpr EncodeOptions kInside{.add_bos = false, .parse_special = false, .continues = true};

// Throws Error(unsupported) when the vocabulary has too few plain words.
PlantedText plant(const Tokenizer& tokenizer, std::span<const TokenId> filler, const PlantOptions& options);

// Ids of tokens that are a space and a lower-case word of 4 to 8 letters.
std::vector<TokenId> plain_words(const Tokenizer& tokenizer);

}  // namespace kvtide
