#include "text/word_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace kvtide {
namespace {

TEST(WordCache, TakesNothingForShortTexts_AndNoLongOrEmptyWords) {
  WordCache cache;
  cache.open(1000);
  EXPECT_FALSE(cache.takes("word"));
  cache.open(1 << 20);
  EXPECT_TRUE(cache.takes("word"));
  EXPECT_TRUE(cache.takes(std::string(WordCache::kLongest, 'x')));
  EXPECT_FALSE(cache.takes(std::string(WordCache::kLongest + 1, 'x')));
  EXPECT_FALSE(cache.takes(""));
}

TEST(WordCache, GivesTheIdsOfAWordOrNothing_NeverThoseOfAnother) {
  WordCache cache;
  cache.open(1 << 20);
  std::mt19937 random(3);
  std::map<std::string, std::vector<TokenId>> all;
  std::int64_t hits = 0;
  for (int i = 0; i < 200'000; ++i) {
    // Few letters of either sign: many words, of all lengths, that are alike but for a byte or two.
    std::string word(1 + random() % WordCache::kLongest, 'a');
    for (char& c : word)
      if (random() % 4 == 0) c = static_cast<char>(random() % 3 == 0 ? 0xe2 : 'b');
    std::vector<TokenId>& ids = all[word];
    if (ids.empty())
      for (std::size_t n = 1 + random() % WordCache::kMostIds; n > 0; --n)
        ids.push_back(static_cast<TokenId>(random() % 50000));
    if (const auto found = cache.find(word)) {
      ++hits;
      ASSERT_TRUE(std::equal(found->begin(), found->end(), ids.begin(), ids.end())) << word;
    } else {
      cache.keep(word, ids);
    }
  }
  EXPECT_GT(hits, 1000);
}

TEST(WordCache, WordsOfManyIdsAreNotKept) {
  WordCache cache;
  cache.open(1 << 20);
  const std::vector<TokenId> many(WordCache::kMostIds + 1, 7);
  cache.keep("word", many);
  EXPECT_FALSE(cache.find("word"));
}

}  // namespace
}  // namespace kvtide
