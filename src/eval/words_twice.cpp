#include "eval/words_twice.h"

#include <random>
#include <utility>

#include "eval/planted_text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kWords = 96, kBefore = 60, kBetween = 1040, kSettle = 8;

std::vector<TokenId> random_words(const Tokenizer& tokenizer, std::mt19937_64& random) {
  std::vector<TokenId> words = plain_words(tokenizer);
  if (static_cast<std::int64_t>(words.size()) < kWords)
    throw Error(ErrorCode::unsupported,
                "head table: the vocabulary has too few plain words to test recall with");
  for (std::size_t i = 0; i < static_cast<std::size_t>(kWords); ++i)
    std::swap(words[i], words[i + random() % (words.size() - i)]);
  words.resize(static_cast<std::size_t>(kWords));
  return words;
}

}  // namespace

WordsTwice words_twice(const Tokenizer& tokenizer, std::span<const TokenId> prose, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto words = random_words(tokenizer, random);
  const auto filler = prose.subspan(static_cast<std::size_t>(seed * 40));
  WordsTwice text{{}, kBefore, kBefore + kWords + kBetween, kWords, kSettle};
  const auto add = [&](std::span<const TokenId> ids) {
    text.tokens.insert(text.tokens.end(), ids.begin(), ids.end());
  };
  add(filler.first(kBefore));
  add(words);
  add(filler.subspan(kBefore, kBetween));
  add(words);
  return text;
}

}  // namespace kvtide
