#include "text/token_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

namespace kvtide {
namespace {

TEST(TextIndex, FindsWhatWasInserted_AndNothingElse) {
  TokenTexts texts;
  TextIndex index(4);  // far too small: it has to grow
  std::map<std::string, TokenId> expected;
  std::mt19937 random(3);
  for (TokenId id = 0; id < 20000; ++id) {
    std::string text;
    for (auto length = random() % 12; length > 0; --length) text += static_cast<char>('a' + random() % 3);
    texts.add(text);
    EXPECT_EQ(index.insert(texts, id), expected.emplace(text, id).second);
  }
  for (const auto& [text, id] : expected) EXPECT_EQ(index.find(texts, text), id);
  for (const char* absent : {"d", "aaaaaaaaaaaad", "abcabcabcabcabc"})
    EXPECT_EQ(index.find(texts, absent), std::nullopt);
}

TEST(TextIndex, TellsTextsApartThatDifferInOneByteAnywhere) {
  TokenTexts texts;
  TextIndex index(0);
  TokenId id = 0;
  for (std::size_t length = 1; length <= 20; ++length) {
    for (std::size_t at = 0; at < length; ++at) {
      std::string text(length, 'x');
      text[at] = 'y';
      texts.add(text);
      EXPECT_TRUE(index.insert(texts, id++));
    }
  }
  for (TokenId i = 0; i < id; ++i) EXPECT_EQ(index.find(texts, texts[i]), i);
}

TEST(PairIndex, FindsWhatWasInserted_AndKeepsTheFirst) {
  PairIndex index(3000);
  std::map<std::pair<TokenId, TokenId>, TokenId> expected;
  std::mt19937 random(5);
  for (TokenId id = 0; id < 3000; ++id) {
    const TokenId left = static_cast<TokenId>(random() % 50), right = static_cast<TokenId>(random() % 50);
    EXPECT_EQ(index.insert(left, right, {static_cast<std::uint32_t>(id) + 7, id}),
              expected.emplace(std::pair{left, right}, id).second);
  }
  for (TokenId left = 0; left < 51; ++left) {
    for (TokenId right = 0; right < 51; ++right) {
      const auto found = expected.find({left, right});
      const Merge merge = index.find(left, right);
      EXPECT_EQ(merge.id, found == expected.end() ? -1 : found->second);
      EXPECT_EQ(merge.rank,
                found == expected.end() ? Merge::kNoRank : static_cast<std::uint32_t>(found->second) + 7);
    }
  }
}

}  // namespace
}  // namespace kvtide
