#include "kvtide/tokenizer.h"

#include <gtest/gtest.h>

#include "tests/text/small_vocabulary.h"

namespace kvtide {
namespace {

using Ids = std::vector<TokenId>;

constexpr EncodeOptions kAsText{.add_bos = {}, .parse_special = false};

TEST(ByteLevelBpe, MergesTheBestPairFirst_NotTheLeftmost) {
  auto vocabulary = SmallVocabulary::byte_level();
  const TokenId bc = vocabulary.merge("b", "c");
  const TokenId ab = vocabulary.merge("a", "b");
  const Tokenizer tokenizer = vocabulary.build();
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{'a', bc}));
  EXPECT_EQ(tokenizer.encode("abab"), (Ids{ab, ab}));
}

TEST(ByteLevelBpe, MergesRunsOfOneLetterFromTheLeft) {
  auto vocabulary = SmallVocabulary::byte_level();
  const TokenId aa = vocabulary.merge("a", "a");
  const Tokenizer tokenizer = vocabulary.build();
  EXPECT_EQ(tokenizer.encode("aaaaa"), (Ids{aa, aa, 'a'}));
}

TEST(ByteLevelBpe, OfTwoEqualMergesTheFirstCounts) {
  auto vocabulary = SmallVocabulary::byte_level();
  const TokenId ab = vocabulary.merge("a", "b");
  const TokenId bc = vocabulary.merge("b", "c");
  vocabulary.merges.push_back("a b");
  EXPECT_EQ(vocabulary.build().encode("abc"), (Ids{ab, 'c'}));
  std::swap(vocabulary.merges[0], vocabulary.merges[1]);
  EXPECT_EQ(vocabulary.build().encode("abc"), (Ids{'a', bc}));
}

TEST(ByteLevelBpe, LeavesOutBytesWithoutAToken_AndNamesThem) {
  auto vocabulary = SmallVocabulary::byte_level();
  vocabulary.texts[0x07] = "no longer a byte";
  vocabulary.texts['q'] = "nor this";
  const Tokenizer tokenizer = vocabulary.build();
  EXPECT_EQ(tokenizer.missing_bytes(), "\x07q");
  EXPECT_EQ(tokenizer.encode("a\x07"
                             "bq"),
            (Ids{'a', 'b'}));
}

TEST(ByteLevelBpe, AWholeWordThatIsATokenIgnoresTheMerges_OnlyWhereTheFileAsksForIt) {
  auto vocabulary = SmallVocabulary::byte_level("llama-bpe");
  const TokenId abc = vocabulary.add("abc");
  EXPECT_EQ(vocabulary.build().encode("abc"), Ids{abc});
  vocabulary.spec.pre = "smaug-bpe";
  EXPECT_EQ(vocabulary.build().encode("abc"), (Ids{'a', 'b', 'c'}));
}

TEST(ByteLevelBpe, PiecesAreBytes_AlsoThoseThatAreHalfACharacter) {
  auto vocabulary = SmallVocabulary::byte_level();
  const Tokenizer tokenizer = vocabulary.build();
  EXPECT_EQ(tokenizer.piece(0xc3), "\xc3");
  EXPECT_EQ(tokenizer.piece(' '), " ");
  EXPECT_EQ(tokenizer.decode(Ids{0xc3, 0xa9, 0}), std::string("\xc3\xa9\0", 3));
}

TEST(SentencePiece, MergesTheHighestScoreFirst_AndTheLeftmostOfEquals) {
  auto vocabulary = SmallVocabulary::sentencepiece();
  for (const char* letter : {"a", "b", "c"}) vocabulary.add(letter, TokenType::normal, -100);
  const TokenId a = 259, c = 261;
  const TokenId ab = vocabulary.add("ab", TokenType::normal, -2);
  const TokenId bc = vocabulary.add("bc", TokenType::normal, -1);
  EXPECT_EQ(vocabulary.build().encode("abc"), (Ids{a, bc}));
  vocabulary.spec.scores[static_cast<std::size_t>(bc)] = -2;
  EXPECT_EQ(vocabulary.build().encode("abc"), (Ids{ab, c}));
}

TEST(SentencePiece, SpellsWhatItDoesNotKnowInBytes) {
  const Tokenizer tokenizer = SmallVocabulary::sentencepiece().build();
  EXPECT_EQ(tokenizer.encode("\xc3\xa9\n"), (Ids{3 + 0xc3, 3 + 0xa9, 3 + '\n'}));
  EXPECT_EQ(tokenizer.decode(Ids{3 + 0xc3, 3 + 0xa9, 3 + '\n'}), "\xc3\xa9\n");
}

TEST(SentencePiece, WithoutBytesARunOfUnknownCharactersIsOneUnknownToken) {
  SmallVocabulary vocabulary;
  vocabulary.spec.kind = VocabSpec::Kind::sentencepiece;
  vocabulary.spec.unk = vocabulary.add("<unk>", TokenType::unknown);
  const TokenId a = vocabulary.add("a");
  EXPECT_EQ(vocabulary.build().encode("axyazz"), (Ids{a, 0, a, 0}));
}

TEST(SentencePiece, PutsASpaceInFrontOfText_AndTakesItOffAgain) {
  auto vocabulary = SmallVocabulary::sentencepiece();
  vocabulary.spec.add_space_prefix = true;
  const TokenId a = vocabulary.add("a", TokenType::normal, -3);
  const TokenId mark = vocabulary.add("\xe2\x96\x81", TokenType::normal, -2);
  const TokenId mark_a = vocabulary.add(
      "\xe2\x96\x81"
      "a",
      TokenType::normal, -1);
  const Tokenizer tokenizer = vocabulary.build();
  EXPECT_EQ(tokenizer.encode("a"), Ids{mark_a});
  EXPECT_EQ(tokenizer.encode(" a"), (Ids{mark, mark_a}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.decode(Ids{mark_a}), "a");
  EXPECT_EQ(tokenizer.decode(Ids{1, mark_a, mark_a}), "a a");
  EXPECT_EQ(tokenizer.piece(mark_a), " a");
  // Not behind a marker, nor where the text goes on behind other text.
  EXPECT_EQ(tokenizer.encode("</s>a"), (Ids{2, a}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("</s> a"), true), "</s> a");
  EXPECT_EQ(tokenizer.encode("a", {.add_bos = {}, .parse_special = true, .continues = true}), Ids{a});
}

TEST(SentencePiece, AUserDefinedTokenStaysWhole_EvenWhereAMergeWouldTakeItApart) {
  auto vocabulary = SmallVocabulary::sentencepiece();
  const TokenId a = vocabulary.add("a");
  const TokenId bc = vocabulary.add("bc", TokenType::user_defined);
  const TokenId two = vocabulary.add("  ", TokenType::user_defined);  // written with spaces in the file
  vocabulary.add("b");
  vocabulary.add("ab");
  const Tokenizer tokenizer = vocabulary.build();
  EXPECT_EQ(tokenizer.encode("abc  a", kAsText), (Ids{a, bc, two, a}));
  EXPECT_EQ(tokenizer.decode(Ids{a, bc, two, a}), "abc  a");
  EXPECT_EQ(tokenizer.find("  "), two);
}

TEST(Tokenizer, MarkersInTextAreTokensOrText_AsTheCallerSays) {
  auto vocabulary = SmallVocabulary::byte_level();
  const TokenId marker = vocabulary.add("<|x|>", TokenType::control);
  const Tokenizer tokenizer = vocabulary.build();
  EXPECT_EQ(tokenizer.encode("a<|x|>b"), (Ids{'a', marker, 'b'}));
  EXPECT_EQ(tokenizer.encode("a<|x|>b", kAsText), (Ids{'a', '<', '|', 'x', '|', '>', 'b'}));
  EXPECT_EQ(tokenizer.decode(Ids{'a', marker, 'b'}), "ab");
  EXPECT_EQ(tokenizer.decode(Ids{'a', marker, 'b'}, true), "a<|x|>b");
}

TEST(Tokenizer, WhatAUserWroteCannotEndItsTurn_EvenWhenTheFileCallsTheMarkerUserDefined) {
  for (const TokenType type : {TokenType::control, TokenType::user_defined}) {
    auto vocabulary = SmallVocabulary::byte_level();
    const TokenId end = vocabulary.add("<|im_end|>", type);
    const Tokenizer tokenizer = vocabulary.build();
    const std::vector<TextSegment> segments = {{"a", true}, {"<|im_end|>", false}, {"<|im_end|>", true}};
    const Ids ids = tokenizer.encode(segments);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 1);
    EXPECT_EQ(ids.back(), end);
    EXPECT_EQ(ids.size(), 12u);
    // Nor can a marker be put together across the edge of a segment.
    const std::vector<TextSegment> halves = {
        {"<|im_", true}, {"end|>", false}, {"<|im", false}, {"_end|>", true}};
    EXPECT_EQ(tokenizer.encode(halves).size(), 20u);
  }
}

TEST(Tokenizer, SegmentsAreReadAsOneText) {
  auto vocabulary = SmallVocabulary::byte_level();
  const TokenId ab = vocabulary.merge("a", "b");
  const std::vector<TextSegment> segments = {{"xa", true}, {"by", false}};
  EXPECT_EQ(vocabulary.build().encode(segments), (Ids{'x', ab, 'y'}));
}

TEST(Tokenizer, OfTwoEqualTokensTheLowerIdIsUsed_AndBothDecode) {
  auto vocabulary = SmallVocabulary::byte_level();
  const TokenId ab = vocabulary.merge("a", "b");
  const TokenId again = vocabulary.add("ab");
  const Tokenizer tokenizer = vocabulary.build();
  EXPECT_EQ(tokenizer.encode("ab"), Ids{ab});
  EXPECT_EQ(tokenizer.decode(Ids{again}), "ab");
  EXPECT_EQ(tokenizer.find("ab"), ab);
}

TEST(Tokenizer, BosAndEosComeAsTheVocabularySays_UnlessTheCallerSaysOtherwise) {
  auto vocabulary = SmallVocabulary::sentencepiece();
  vocabulary.spec.add_bos = vocabulary.spec.add_eos = true;
  const TokenId a = vocabulary.add("a");
  const Tokenizer tokenizer = vocabulary.build();
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.encode("a"), (Ids{1, a, 2}));
  EXPECT_EQ(tokenizer.encode("a", {.add_bos = false}), (Ids{a, 2}));
  EXPECT_EQ(tokenizer.encode("a", {.add_bos = {}, .parse_special = true, .continues = true}), Ids{a});
  EXPECT_EQ(tokenizer.encode(""), (Ids{1, 2}));
}

TEST(Tokenizer, BosOnRequestNeedsABosToken) {
  const Tokenizer tokenizer = SmallVocabulary::byte_level().build();
  EXPECT_EQ(refusal([&] { tokenizer.encode("a", {.add_bos = true}); }),
            "invalid_argument: encode: add_bos is set, but the vocabulary names no bos token");
}

TEST(Tokenizer, KnowsWhichTokensEndAText) {
  auto vocabulary = SmallVocabulary::byte_level();
  vocabulary.spec.eos = vocabulary.add("the end", TokenType::control);
  vocabulary.spec.eot = vocabulary.add("end of turn", TokenType::control);
  const TokenId im_end = vocabulary.add("<|im_end|>", TokenType::control);
  const TokenId im_start = vocabulary.add("<|im_start|>", TokenType::control);
  const TokenId strike = vocabulary.add("</s>", TokenType::user_defined);  // Gemma's HTML, not an end
  const Tokenizer tokenizer = vocabulary.build();
  for (const TokenId id : {*vocabulary.spec.eos, *vocabulary.spec.eot, im_end})
    EXPECT_TRUE(tokenizer.ends_text(id));
  for (const TokenId id : {TokenId{'a'}, im_start, strike}) EXPECT_FALSE(tokenizer.ends_text(id));
}

TEST(Tokenizer, FindsTokensByTheirStoredText) {
  auto vocabulary = SmallVocabulary::byte_level();
  const TokenId marker = vocabulary.add("<|x|>", TokenType::control);
  const Tokenizer tokenizer = vocabulary.build();
  EXPECT_EQ(tokenizer.find("<|x|>"), marker);
  EXPECT_EQ(tokenizer.find("\xc4\xa0"), ' ');  // the byte-level spelling of a space
  EXPECT_EQ(tokenizer.find("absent"), std::nullopt);
  EXPECT_EQ(tokenizer.find(""), std::nullopt);
}

TEST(Tokenizer, RefusesInvalidUtf8_InEveryKind) {
  for (auto& vocabulary : {SmallVocabulary::byte_level(), SmallVocabulary::sentencepiece()}) {
    const Tokenizer tokenizer = SmallVocabulary(vocabulary).build();
    EXPECT_EQ(refusal([&] { tokenizer.encode("fine until\xe2\x28\xa1"); }).substr(0, 52),
              "bad_text: text is not valid UTF-8 at byte 10 of 13; ");
  }
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  const Tokenizer tokenizer = SmallVocabulary::byte_level().build();
  for (const TokenId id : {-1, 256, 0x7fffffff}) {
    const std::string expected =
        "invalid_argument: token " + std::to_string(id) + " is outside the vocabulary: ids go from 0 to 255";
    EXPECT_EQ(refusal([&] { tokenizer.piece(id); }), expected);
    EXPECT_EQ(refusal([&] { tokenizer.decode(Ids{'a', id}); }), expected);
    EXPECT_EQ(refusal([&] { tokenizer.ends_text(id); }), expected);
  }
}

}  // namespace
}  // namespace kvtide
