// The words are written out by hand from the published expressions; goldens_test compares ids with the
// references.
#include "text/pretokenize.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/text/small_vocabulary.h"

namespace kvtide {
namespace {

using Words = std::vector<std::string>;

Words words(PreTokenizer rule, std::string_view text) {
  Words out;
  pre_tokenize(rule, text, [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

TEST(PreTokenizer, Gpt2_PutsOneSpaceBeforeAWord_AndTheRestByItself) {
  EXPECT_EQ(words(PreTokenizer::gpt2, "It's  a   test 123\n\n x!?"),
            (Words{"It", "'s", " ", " a", "  ", " test", " 123", "\n\n", " x", "!?"}));
}

TEST(PreTokenizer, Gpt2_KnowsShortFormsInLowerCaseOnly) {
  EXPECT_EQ(words(PreTokenizer::gpt2, "we'll WE'LL"), (Words{"we", "'ll", " WE", "'", "LL"}));
}

TEST(PreTokenizer, Gpt2_KeepsWhiteSpaceAtTheEndTogether) {
  EXPECT_EQ(words(PreTokenizer::gpt2, "a \t\n"), (Words{"a", " \t\n"}));
}

TEST(PreTokenizer, Smollm_IsolatesEveryNumber_AndTreatsWhatLiesBetweenAsEnded) {
  EXPECT_EQ(words(PreTokenizer::smollm,
                  "in 2024  x\xc2\xbd"
                  "1"),
            (Words{"in", " ", "2", "0", "2", "4", " ", " x", "\xc2\xbd", "1"}));
  EXPECT_EQ(words(PreTokenizer::smollm, "a  1"), (Words{"a", "  ", "1"}));
}

TEST(PreTokenizer, Llama3_TakesNumbersByThree_AndOneSignBeforeLetters) {
  EXPECT_EQ(words(PreTokenizer::llama3, "x=12345 (abc) -- d"),
            (Words{"x", "=", "123", "45", " (", "abc", ")", " --", " d"}));
  EXPECT_EQ(words(PreTokenizer::llama3, "(abc"), (Words{"(abc"}));
}

TEST(PreTokenizer, Llama3_KnowsShortFormsInAnyCase_AndTheLongS) {
  EXPECT_EQ(words(PreTokenizer::llama3, "WE'LL it'S x'\xc5\xbf"),
            (Words{"WE", "'LL", " it", "'S", " x", "'\xc5\xbf"}));
}

TEST(PreTokenizer, Llama3_EndsAWordOfSignsOrSpaceBehindItsNewlines) {
  EXPECT_EQ(words(PreTokenizer::llama3, "a;\n\n  b \n \n  c"),
            (Words{"a", ";\n\n", " ", " b", " \n \n", " ", " c"}));
  EXPECT_EQ(words(PreTokenizer::llama3, "\r\nx"), (Words{"\r\n", "x"}));
}

TEST(PreTokenizer, Qwen2_TakesNumbersOneByOne) {
  EXPECT_EQ(words(PreTokenizer::qwen2, "a123 4"), (Words{"a", "1", "2", "3", " ", "4"}));
}

TEST(PreTokenizer, Default_SplitsAtPunctuationFirst_AndDigitsByThree) {
  EXPECT_EQ(words(PreTokenizer::fallback, "don't pay $12345, ok"),
            (Words{"don", "'", "t", " pay", " ", "$", "123", "45", ",", " ok"}));
  EXPECT_EQ(words(PreTokenizer::fallback,
                  "12\xd9\xa3"
                  "4567"),
            (Words{"12\xd9\xa3", "456", "7"}));
}

TEST(PreTokenizer, AnEmptyTextHasNoWords) {
  for (const auto rule : {PreTokenizer::gpt2, PreTokenizer::smollm, PreTokenizer::llama3, PreTokenizer::qwen2,
                          PreTokenizer::fallback}) {
    EXPECT_EQ(words(rule, ""), Words{});
  }
}

TEST(PreTokenizer, NamesOfFilesLeadToTheRule) {
  EXPECT_EQ(find_pre_tokenizer("llama-v3").rule, PreTokenizer::llama3);
  EXPECT_TRUE(find_pre_tokenizer("llama-bpe").whole_words);
  EXPECT_EQ(find_pre_tokenizer("smaug-bpe").rule, PreTokenizer::llama3);
  EXPECT_FALSE(find_pre_tokenizer("smaug-bpe").whole_words);
  EXPECT_EQ(find_pre_tokenizer("deepseek-r1-qwen").rule, PreTokenizer::qwen2);
}

TEST(PreTokenizer, AnUnknownNameIsRefused_AndTheKnownOnesAreListed) {
  const std::string message = refusal([] { find_pre_tokenizer("klingon"); });
  EXPECT_EQ(message.substr(0, 60), "unsupported: vocabulary: unknown pre-tokeniser 'klingon'; kv");
  for (const char* name : {"default", "gpt-2", "llama-bpe", "qwen2", "smollm"}) {
    EXPECT_NE(message.find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace kvtide
