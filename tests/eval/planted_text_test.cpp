#include "eval/planted_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "eval/filler.h"
#include "eval/recall.h"
#include "kvtide/model.h"
#include "tests/engine/logits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

constexpr int kWords = 200;

class PlantedTextTest : public ::testing::Test {
 protected:
  static testing::SampleModel sample() {
    testing::SampleModel out;
    out.words = kWords;
    return out;
  }
  const testing::TemporaryFile file_ = testing::sample_file(sample());
  const Model model_{file_.path()};
  const Tokenizer& tokenizer_ = model_.tokenizer();
  const std::vector<TokenId> filler_ = testing::random_tokens(1000, 60, 9);

  std::vector<TokenId> part(std::span<const TokenId> tokens, const PosRange& range) const {
    return {tokens.begin() + range.first, tokens.begin() + range.last};
  }
};

TEST_F(PlantedTextTest, PlainWords_AreThoseOfTheVocabularyThatAreASpaceAndFourToEightLetters) {
  std::vector<TokenId> wanted;
  for (TokenId id = 64; id < 64 + kWords; ++id) wanted.push_back(id);  // " the" has three letters only
  EXPECT_EQ(plain_words(tokenizer_), wanted);
}

TEST_F(PlantedTextTest, Strings_StandWhereTheyShould_AndComeAgainAtTheEnd) {
  const PlantedText text = plant(tokenizer_, filler_, {.copies = {0.5, 0.1}, .keys = {}});
  ASSERT_EQ(text.plants.size(), 2u);
  EXPECT_EQ(text.plants[0].name, "copy 10%");
  EXPECT_EQ(text.plants[0].position, 100);
  EXPECT_EQ(text.plants[1].position, 500 + 24);
  EXPECT_EQ(text.tokens.size(), 1000u + 2 * 24 + 2 * 24);
  std::set<TokenId> all;
  for (const Plant& plant : text.plants) {
    // 16 of 24 words are asked for; the eight before them are the cue.
    EXPECT_EQ(plant.asked.size(), 16);
    EXPECT_EQ(part(text.tokens, {plant.asked.first - 8, plant.asked.last}),
              part(text.tokens, {plant.position, plant.position + 24}));
    EXPECT_EQ(plant.outside, (std::vector<PosRange>{{plant.position, plant.position + 25},
                                                    {plant.asked.first - 8, plant.asked.last}}));
    for (const TokenId word : part(text.tokens, plant.asked)) all.insert(word);
  }
  EXPECT_EQ(all.size(), 32u);  // no word twice
  // What is left without the plants is the filler.
  std::vector<TokenId> rest;
  for (Pos p = 0; p < 1000 + 48; ++p)
    if (!(p >= 100 && p < 124) && !(p >= 524 && p < 548))
      rest.push_back(text.tokens[static_cast<std::size_t>(p)]);
  EXPECT_EQ(rest, filler_);
}

TEST_F(PlantedTextTest, APassKey_IsAskedForWithItsDigits) {
  const PlantedText text = plant(tokenizer_, filler_, {.copies = {}, .keys = {0.2}, .seed = 5});
  ASSERT_EQ(text.plants.size(), 1u);
  EXPECT_EQ(text.plants[0].position, 200);
  const std::string digits = tokenizer_.decode(part(text.tokens, text.plants[0].asked));
  ASSERT_EQ(digits.size(), 5u);
  EXPECT_TRUE(std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }));
  const PosRange planted = text.plants[0].outside[0];
  const std::string said = tokenizer_.decode(part(text.tokens, {planted.first, planted.last - 1}));
  EXPECT_NE(said.find(digits), said.rfind(digits)) << said;  // twice
  EXPECT_EQ(text.plants[0].asked.last, static_cast<Pos>(text.tokens.size()));
}

TEST_F(PlantedTextTest, ASeed_RepeatsAText_AndAnotherOneChangesIt) {
  const auto tokens = [&](std::uint64_t seed) { return plant(tokenizer_, filler_, {.seed = seed}).tokens; };
  EXPECT_EQ(tokens(1), tokens(1));
  EXPECT_NE(tokens(1), tokens(2));
}

TEST_F(PlantedTextTest, Recall_PutsAKeyAndPairsAtADepth_AndAsksForAllOfThem) {
  RecallOptions options{.length = 700, .depth = 0.5, .pairs = 5, .seed = 2};
  const RecallText text = plant_recall(tokenizer_, filler_, options);
  ASSERT_EQ(text.tokens.size(), 700u);
  EXPECT_TRUE(std::equal(text.tokens.begin(), text.tokens.begin() + text.position, filler_.begin()));
  const std::string key = tokenizer_.decode(part(text.tokens, text.key));
  EXPECT_EQ(key.size(), 5u);
  ASSERT_EQ(text.pairs.size(), 5u);
  const Pos questions = text.key.first - 100;  // everything that is planted stands before
  std::set<TokenId> values;
  for (const PosRange& pair : text.pairs) {
    EXPECT_EQ(pair.size(), 1);
    const TokenId value = text.tokens[static_cast<std::size_t>(pair.first)];
    values.insert(value);
    // The line that was planted: the same key word stands as far before the value as in the question.
    const auto planted = std::find(text.tokens.begin(), text.tokens.begin() + questions, value);
    ASSERT_NE(planted, text.tokens.begin() + questions);
    const Pos at = planted - text.tokens.begin();
    EXPECT_GE(at, text.position);
    const auto is_word = [](TokenId token) { return token >= 64; };
    Pos back = 1;
    while (!is_word(text.tokens[static_cast<std::size_t>(pair.first - back)])) ++back;
    EXPECT_EQ(text.tokens[static_cast<std::size_t>(pair.first - back)],
              text.tokens[static_cast<std::size_t>(at - back)]);
  }
  EXPECT_EQ(values.size(), 5u);
  EXPECT_EQ(text.asked().size(), 6u);
  options.depth = 0.0;
  EXPECT_EQ(plant_recall(tokenizer_, filler_, options).position, 1);
  options.depth = 1.0;  // all of the filler but a token
  EXPECT_NEAR(static_cast<double>(text.position),
              static_cast<double>(plant_recall(tokenizer_, filler_, options).position) / 2.0, 2.0);
}

TEST_F(PlantedTextTest, Recall_RefusesWhatDoesNotFit_AndNamesTheNumbers) {
  testing::expect_refused(ErrorCode::invalid_argument, "a text of 70 tokens has no room",
                          [&] { plant_recall(tokenizer_, filler_, {.length = 70}); });
  testing::expect_refused(ErrorCode::invalid_argument, "the filler has 1000 tokens",
                          [&] { plant_recall(tokenizer_, filler_, {.length = 5000}); });
  testing::expect_refused(ErrorCode::unsupported, "recall of 100 pairs needs 201",
                          [&] { plant_recall(tokenizer_, filler_, {.length = 900, .pairs = 100}); });
  testing::expect_refused(ErrorCode::unsupported, "too few plain words", [&] {
    plant(tokenizer_, filler_, {.copies = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}});
  });
}

TEST_F(PlantedTextTest, FillerProse_IsLongEnough_VariedAndTheSameForASeed) {
  const std::vector<TokenId> prose = filler_prose(tokenizer_, 3000);
  EXPECT_GE(prose.size(), 3000u);
  EXPECT_EQ(prose, filler_prose(tokenizer_, 3000));
  EXPECT_NE(prose, filler_prose(tokenizer_, 3000, 2));
  const std::string text = tokenizer_.decode(prose);
  EXPECT_NE(text.find(" river"), std::string::npos);
  EXPECT_NEAR(word_chance(tokenizer_), std::log(200.0), 1e-12);
}

}  // namespace
}  // namespace kvtide
