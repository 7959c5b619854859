// Vocabularies that break a rule are refused with a message that names what is wrong; strange ones that break
// none work.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/text/small_vocabulary.h"

namespace kvtide {
namespace {

std::string refusal_of(SmallVocabulary vocabulary) {
  return refusal([&] { vocabulary.build(); });
}

TEST(HostileVocabulary, WithoutTokens) {
  EXPECT_EQ(refusal_of(SmallVocabulary()), "bad_format: vocabulary: it has no tokens");
}

TEST(HostileVocabulary, WithTypesOrScoresForOtherThanItsTokens) {
  auto types = SmallVocabulary::byte_level();
  types.spec.types.pop_back();
  EXPECT_EQ(refusal_of(types), "bad_format: vocabulary: 255 types for 256 tokens");
  auto scores = SmallVocabulary::sentencepiece();
  scores.spec.scores.clear();
  EXPECT_EQ(refusal_of(scores), "bad_format: vocabulary: 0 scores for 259 tokens");
}

TEST(HostileVocabulary, WithATypeThatDoesNotExist) {
  for (const int type : {0, 7, 255}) {
    auto vocabulary = SmallVocabulary::byte_level();
    vocabulary.spec.types['a'] = static_cast<TokenType>(type);
    EXPECT_EQ(refusal_of(vocabulary), "bad_format: vocabulary: token 97 'a' has type " +
                                          std::to_string(type) + "; types go from 1 to 6");
  }
}

TEST(HostileVocabulary, WithSpecialIdsOutOfRange) {
  auto vocabulary = SmallVocabulary::byte_level();
  vocabulary.spec.bos = 256;
  EXPECT_EQ(refusal_of(vocabulary), "bad_format: vocabulary: the bos token is 256, but ids go from 0 to 255");
  vocabulary.spec.bos = -1;
  EXPECT_EQ(refusal_of(vocabulary), "bad_format: vocabulary: the bos token is -1, but ids go from 0 to 255");
  vocabulary.spec.bos = 0;
  vocabulary.spec.unk = 1 << 30;
  EXPECT_EQ(refusal_of(vocabulary),
            "bad_format: vocabulary: the unknown token is 1073741824, but ids go from 0 to 255");
}

TEST(HostileVocabulary, ThatAddsABosOrEosItDoesNotName) {
  auto vocabulary = SmallVocabulary::byte_level();
  vocabulary.spec.add_bos = true;
  EXPECT_EQ(refusal_of(vocabulary), "bad_format: vocabulary: asks for a bos token and names none");
  vocabulary.spec.add_bos = false;
  vocabulary.spec.add_eos = true;
  EXPECT_EQ(refusal_of(vocabulary), "bad_format: vocabulary: asks for an eos token and names none");
}

TEST(HostileVocabulary, WithMergesThatAreNotTwoTokens) {
  for (const char* merge : {"", " ", "ab", " b", "a ", "a  b", "a b c"}) {
    auto vocabulary = SmallVocabulary::byte_level();
    vocabulary.merge("a", "b");
    vocabulary.merges.push_back(merge);
    EXPECT_EQ(refusal_of(vocabulary), "bad_format: vocabulary: merge 1 '" + std::string(merge) +
                                          "' has to be two tokens with one space between them");
  }
}

TEST(HostileVocabulary, WithMergesOfAbsentTokens_AndTheAbsentOneIsNamed) {
  const auto with = [](const char* merge) {
    auto vocabulary = SmallVocabulary::byte_level();
    vocabulary.merges.push_back(merge);
    return refusal_of(vocabulary);
  };
  EXPECT_EQ(
      with("zz b"),
      "bad_format: vocabulary: merge 0 'zz b' needs the token 'zz', which the vocabulary does not have");
  EXPECT_EQ(
      with("b zz"),
      "bad_format: vocabulary: merge 0 'b zz' needs the token 'zz', which the vocabulary does not have");
  EXPECT_EQ(with("a b"),
            "bad_format: vocabulary: merge 0 'a b' needs the token 'ab', which the vocabulary does not have");
}

TEST(HostileVocabulary, WithoutAnySingleByte) {
  SmallVocabulary vocabulary;
  vocabulary.spec.pre = "gpt-2";
  vocabulary.add("ab");
  EXPECT_EQ(refusal_of(vocabulary),
            "bad_format: vocabulary: no token is a single byte, so byte-level BPE cannot spell any text");
}

TEST(HostileVocabulary, WithScoresThatAreNotNumbers) {
  auto vocabulary = SmallVocabulary::sentencepiece();
  vocabulary.add("a", TokenType::normal, std::nanf(""));
  EXPECT_EQ(refusal_of(vocabulary), "bad_format: vocabulary: token 259 'a' has a score that is not a number");
}

TEST(HostileVocabulary, WithInfiniteScoresIsNoProblem) {
  auto vocabulary = SmallVocabulary::sentencepiece();
  for (const char* text : {"a", "b", "c"}) vocabulary.add(text);
  vocabulary.add("ab", TokenType::normal, -std::numeric_limits<float>::infinity());
  const TokenId bc = vocabulary.add("bc", TokenType::normal, std::numeric_limits<float>::infinity());
  EXPECT_EQ(vocabulary.build().encode("abc"), (std::vector<TokenId>{259, bc}));
}

TEST(HostileVocabulary, WithMalformedByteTokens) {
  for (const char* text :
       {"<0x0>", "<0x0g>", "<0x+1>", "<0X0A>", "<0x 1>", "<0x000>", "0x0A", "<0x-1>", ""}) {
    auto vocabulary = SmallVocabulary::sentencepiece();
    vocabulary.texts[3] = text;
    EXPECT_EQ(refusal_of(vocabulary),
              "bad_format: vocabulary: token 3 '" + std::string(text) +
                  "' is marked as a byte token, which has to be written <0x00> to <0xFF>");
  }
}

TEST(HostileVocabulary, WithAByteTokenMissing) {
  auto vocabulary = SmallVocabulary::sentencepiece();
  vocabulary.spec.types[3 + 65] = TokenType::normal;
  EXPECT_EQ(
      refusal_of(vocabulary),
      "bad_format: vocabulary: there are byte tokens, but none for byte 65; all 256 or none are needed");
}

TEST(HostileVocabulary, WithNoWayToSpellUnknownText) {
  SmallVocabulary vocabulary;
  vocabulary.spec.kind = VocabSpec::Kind::sentencepiece;
  vocabulary.add("a");
  EXPECT_EQ(refusal_of(vocabulary),
            "bad_format: vocabulary: neither byte tokens nor an unknown token, so some text has no ids");
}

TEST(HostileVocabulary, TokensThatAreNotTextOrEmptyAreNeverFoundButDecode) {
  auto bpe = SmallVocabulary::byte_level();
  const TokenId raw = bpe.add("\xff\xfe");
  const TokenId empty = bpe.add("");
  const Tokenizer byte_level = bpe.build();
  EXPECT_EQ(byte_level.piece(raw), "\xff\xfe");
  EXPECT_EQ(byte_level.piece(empty), "");
  auto spm = SmallVocabulary::sentencepiece();
  spm.add("", TokenType::user_defined);
  spm.add("", TokenType::control);
  const TokenId half = spm.add("\xc3");
  const Tokenizer pieces = spm.build();
  EXPECT_EQ(pieces.encode("\xc3\xa9"), (std::vector<TokenId>{3 + 0xc3, 3 + 0xa9}));
  EXPECT_EQ(pieces.piece(half), "\xc3");
}

// Equal scores everywhere and every run of letters a token: each merge makes new pairs that are as good as
// those waiting.
TEST(HostileVocabulary, WithNothingButTiesStillMergesFromTheLeft) {
  auto vocabulary = SmallVocabulary::sentencepiece();
  std::string run;
  for (int length = 1; length <= 40; ++length) vocabulary.add(run += 'a');
  const Tokenizer tokenizer = vocabulary.build();
  const TokenId longest = static_cast<TokenId>(vocabulary.texts.size()) - 1;
  EXPECT_EQ(tokenizer.encode(std::string(4000, 'a')), std::vector<TokenId>(100, longest));
}

// Tokens that come apart into tokens that come apart: as deep as the token is long, on a stack of our own.
TEST(HostileVocabulary, UnusedTokensComeApartHoweverDeepTheyAreNested) {
  auto vocabulary = SmallVocabulary::sentencepiece();
  const TokenId a = vocabulary.add("a", TokenType::normal, -1e9f);
  std::string run = "a";
  for (int length = 2; length <= 3000; ++length) {
    vocabulary.add(run += 'a', TokenType::unused, static_cast<float>(length));
  }
  EXPECT_EQ(vocabulary.build().encode(std::string(6001, 'a')), std::vector<TokenId>(6001, a));
}

}  // namespace
}  // namespace kvtide
