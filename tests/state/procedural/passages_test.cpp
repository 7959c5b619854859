// Which passages of an old text copying heads keep: those of tokens that the text hardly uses.
#include "state/procedural/passages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <set>

#include "procedural_state.h"

namespace kvtide {
namespace {

std::vector<TokenId> repeating(Pos length) {
  std::vector<TokenId> tokens;
  for (Pos p = 0; p < length; ++p) tokens.push_back(static_cast<TokenId>(p % 7));
  return tokens;
}

TEST(Passages, AreWorthTheMeanRarityOfTheirTokens) {
  std::vector<TokenId> tokens(3 * kPassage, 5);
  for (Pos p = 0; p < kPassage; p += 2) tokens[static_cast<std::size_t>(p)] = 100 + static_cast<TokenId>(p);
  const std::vector<double> rarity = rarity_of_passages(tokens);
  ASSERT_EQ(rarity.size(), 3u);
  const double once = std::log(48.0), common = std::log(48.0 / 40.0);
  const double own = (once + common) / 2.0;
  EXPECT_NEAR(rarity[0], own, 1e-12);
  EXPECT_NEAR(rarity[1], (own + common) / 2.0, 1e-12) << "with the neighbour that is rarer";
  EXPECT_NEAR(rarity[2], common, 1e-12);
}

TEST(Passages, AreWholeOnes) {
  EXPECT_TRUE(rarity_of_passages({}).empty());
  EXPECT_TRUE(rarity_of_passages(repeating(kPassage - 1)).empty());
  EXPECT_EQ(rarity_of_passages(repeating(2 * kPassage + 1)).size(), 2u);
}

// Rows of a copying head of which text stay, by position.
std::set<Pos> kept(const KvState& state, int layer, int head) {
  std::set<Pos> positions;
  std::vector<Span> spans;
  state.past()->append_spans(layer, head, std::nullopt, state.position(), spans);
  for (const Span& span : spans)
    for (std::int64_t i = 0; i < span.rows; ++i)
      positions.insert(state.past()->position_of(layer, head, span.keys + i * span.key_stride));
  return positions;
}

TEST(Passages, OfTheNewestHalfAllStay) {
  const KvSpec spec = testing::procedural_spec();
  ThreadPool pool(1);
  std::vector<TokenId> tokens(1000, 3);
  for (Pos p = 0; p < 750; ++p) tokens[static_cast<std::size_t>(p)] = 500 + static_cast<TokenId>(p);
  KvState state(spec);
  testing::feed(state, pool, 1000, 16, {}, tokens);
  const std::set<Pos> positions = kept(state, 0, 1);
  const Pos sealed = state.past()->exact_from();
  for (Pos p = sealed - spec.procedural->full_rows / 2 + kPassage; p < sealed; ++p)
    EXPECT_TRUE(positions.contains(p)) << p;
}

TEST(Passages, ThatAreLittleRarerGoWithAge) {
  const KvSpec spec = testing::procedural_spec();
  ThreadPool pool(1);
  std::vector<TokenId> tokens = repeating(1000);
  // A token of each of the first passages stands nowhere else: 1/16 of ln N more than the others are worth.
  for (Pos p = 5; p < 64; p += kPassage) tokens[static_cast<std::size_t>(p)] = 500 + static_cast<TokenId>(p);
  KvState state(spec);
  testing::feed(state, pool, 1000, 16, {}, tokens);
  EXPECT_GT(*kept(state, 0, 1).begin(), 500);
}

TEST(Passages, OfRareTokensStayWhateverTheirAge) {
  KvSpec spec = testing::procedural_spec();
  ThreadPool pool(1);
  std::vector<TokenId> tokens = repeating(1000);
  const Pos rare = 10 * kPassage + 4;  // over the edge of a passage
  for (Pos p = rare; p < rare + 24; ++p) tokens[static_cast<std::size_t>(p)] = 500 + static_cast<TokenId>(p);
  KvState state(spec);
  testing::feed(state, pool, 1000, 16, {}, tokens);
  ASSERT_GT(state.past()->counts().thinned, 0);
  const std::set<Pos> positions = kept(state, 0, 1);
  for (Pos p = rare; p < rare + 24; ++p) EXPECT_TRUE(positions.contains(p)) << p;
  EXPECT_FALSE(positions.contains(rare + 4 * kPassage));
  EXPECT_LE(std::ssize(positions), spec.procedural->full_rows);
}

}  // namespace
}  // namespace kvtide
