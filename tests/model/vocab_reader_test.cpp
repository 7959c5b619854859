#include "model/vocab_reader.h"

#include <gtest/gtest.h>

#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::ModelSketch;
using testing::sample_model;

template <class Check>
void read(const ModelSketch& sketch, Check check) {
  const testing::Bytes bytes = sketch.build().bytes;
  const GgufFile file = GgufFile::from_bytes(bytes, "sample.gguf");
  check(read_vocab(file));
}

void expect_refused(const ModelSketch& sketch, const std::string& says,
                    ErrorCode code = ErrorCode::bad_format) {
  testing::expect_refused(code, says, [&] { read(sketch, [](const VocabSpec&) {}); });
}

ModelSketch sentencepiece() {
  return sample_model()
      .set("tokenizer.ggml.model", std::string("llama"))
      .drop("tokenizer.ggml.merges")
      .drop("tokenizer.ggml.add_bos_token")
      .set_array("tokenizer.ggml.scores", std::vector<float>(testing::sample_tokens().size(), -1.0f));
}

TEST(VocabReader, ReadsAByteLevelVocabulary) {
  read(sample_model(), [](const VocabSpec& v) {
    EXPECT_EQ(v.kind, VocabSpec::Kind::bpe);
    EXPECT_EQ(v.pre, "gpt-2");
    ASSERT_EQ(v.tokens.size(), 64u);
    EXPECT_EQ(v.tokens[2], "a");
    ASSERT_EQ(v.types.size(), 64u);
    EXPECT_EQ(v.types[0], TokenType::control);
    EXPECT_EQ(v.types[2], TokenType::normal);
    EXPECT_EQ(v.merges, (std::vector<std::string_view>{"t h", "th e", "\u0120 the"}));
    EXPECT_EQ(v.bos, 0);
    EXPECT_EQ(v.eos, 1);
    EXPECT_FALSE(v.eot.has_value());
    EXPECT_TRUE(v.add_bos);
    EXPECT_FALSE(v.add_eos);
    EXPECT_FALSE(v.add_space_prefix);
  });
}

TEST(VocabReader, GivesFilesThatSayNothingTheHabitsOfTheirFamily) {
  read(sentencepiece(), [](const VocabSpec& v) {
    EXPECT_EQ(v.kind, VocabSpec::Kind::sentencepiece);
    EXPECT_EQ(v.scores, std::vector<float>(64, -1.0f));
    EXPECT_TRUE(v.add_bos);
    EXPECT_TRUE(v.add_space_prefix);
  });
  read(sample_model().drop("tokenizer.ggml.add_bos_token").drop("tokenizer.ggml.pre"),
       [](const VocabSpec& v) {
         EXPECT_FALSE(v.add_bos);
         EXPECT_EQ(v.pre, "default");
       });
}

TEST(VocabReader, RefusesAVocabularyThatIsMissingOrUnknown) {
  expect_refused(sample_model().drop("tokenizer.ggml.model"), "'tokenizer.ggml.model' is missing");
  expect_refused(sample_model().drop("tokenizer.ggml.tokens"), "'tokenizer.ggml.tokens' is missing or empty");
  expect_refused(sample_model().set_strings("tokenizer.ggml.tokens", {}),
                 "'tokenizer.ggml.tokens' is missing or empty");
  expect_refused(sample_model().set("tokenizer.ggml.model", std::string("rwkv")),
                 "tokenizer model 'rwkv' is not supported", ErrorCode::unsupported);
}

TEST(VocabReader, RefusesListsThatDoNotMatchTheTokens) {
  expect_refused(sample_model().set_array("tokenizer.ggml.token_type", std::vector<std::int32_t>(63, 1)),
                 "'tokenizer.ggml.token_type' has 63 entries for 64 tokens");
  for (const std::int32_t bad : {0, -1, 7, 1 << 30}) {
    std::vector<std::int32_t> types(64, 1);
    types[40] = bad;
    expect_refused(sample_model().set_array("tokenizer.ggml.token_type", types),
                   "'tokenizer.ggml.token_type' holds " + std::to_string(bad));
  }
  expect_refused(sentencepiece().drop("tokenizer.ggml.scores"),
                 "'tokenizer.ggml.scores' must have one entry");
  expect_refused(sentencepiece().set_array("tokenizer.ggml.scores", std::vector<float>(65, 0.0f)),
                 "'tokenizer.ggml.scores' must have one entry for each of 64 tokens");
}

TEST(VocabReader, RefusesASpecialTokenOutsideTheVocabulary) {
  for (const std::string key : {"bos_token_id", "eos_token_id", "eot_token_id", "unknown_token_id"})
    for (const std::uint32_t id : {64u, 0xffffffffu})
      expect_refused(sample_model().set("tokenizer.ggml." + key, id),
                     "'tokenizer.ggml." + key + "' is " + std::to_string(id) +
                         "; it must be below the vocabulary size 64");
}

}  // namespace
}  // namespace kvtide
