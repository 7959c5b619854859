// goldens_test.cpp: ids equal to those of the packages `tokenizers` and `sentencepiece`, as stored in
// tests/goldens/text.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kvtide/error.h"
#include "tests/text/golden_vocabulary.h"

namespace kvtide {
namespace {

constexpr std::string_view kSpaceMarkText = "\xe2\x96\x81";

class Goldens : public testing::TestWithParam<const char*> {
 protected:
  Goldens()
      : texts(read_golden_texts()), golden(read_golden_vocabulary(GetParam())), tokenizer(golden.build()) {}
  std::vector<std::string> texts;
  GoldenVocabulary golden;
  Tokenizer tokenizer;
};

TEST_P(Goldens, TheFilesHoldWhatTheTestsCountOn) {
  EXPECT_GT(texts.size(), 1500u);
  EXPECT_EQ(golden.hashes.size(), texts.size());
  EXPECT_GT(golden.special.size(), 40u);
  EXPECT_GT(golden.plain.size(), 5u);
}

TEST_P(Goldens, MarkersAsTokens_GivesTheReferenceIds) {
  for (const GoldenIds& entry : golden.special) {
    EXPECT_EQ(tokenizer.encode(texts[entry.text]), entry.ids)
        << "text " << entry.text << ": " << texts[entry.text];
  }
}

TEST_P(Goldens, MarkersAsText_GivesTheReferenceIds) {
  for (const GoldenIds& entry : golden.plain) {
    EXPECT_EQ(tokenizer.encode(texts[entry.text], {.add_bos = {}, .parse_special = false}), entry.ids)
        << "text " << entry.text << ": " << texts[entry.text];
  }
}

TEST_P(Goldens, EveryTextHasTheReferenceHash) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(hash_of(tokenizer.encode(texts[i])), golden.hashes[i]) << "text " << i << ": " << texts[i];
  }
}

// Short texts are encoded afresh, long ones remember their words.
TEST_P(Goldens, ALongTextBecomesWhatItsWordsBecomeOneByOne) {
  std::vector<std::string> words;
  for (const std::string& text : texts)
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.size(), text.find_first_of(" \t\r\n\v\f", at));
      // A mark of space in the text makes a run with the space of the next word.
      const bool marked = text.substr(at, end - at).find(kSpaceMarkText) != text.npos;
      if (end > at && end - at < 200 && !marked) words.push_back(" " + text.substr(at, end - at));
      at = end + 1;
    }
  ASSERT_GT(words.size(), 1000u);
  const EncodeOptions inside{.add_bos = false, .parse_special = false, .continues = true};
  std::mt19937 random(7);
  std::string text;
  std::vector<TokenId> ids;
  while (text.size() < 300'000) {
    // Some words again and again, as in prose.
    const std::size_t among = random() % 2 == 0 ? 40 : words.size();
    const std::string& word = words[random() % among];
    text += word;
    const auto more = tokenizer.encode(word, inside);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  EXPECT_TRUE(tokenizer.encode(text, inside) == ids);
}

TEST_P(Goldens, DecodingGivesTheTextBack) {
  const bool has_unknown =
      std::string_view(GetParam()) == "spm-unused";  // has no byte tokens: unknown text is lost
  const std::string missing = tokenizer.missing_bytes();
  std::size_t compared = 0;
  for (const std::string& text : texts) {
    if (golden.spec.kind == VocabSpec::Kind::sentencepiece && text.find(kSpaceMarkText) != text.npos)
      continue;
    if (text.find_first_of(missing) != text.npos) continue;
    const auto ids = tokenizer.encode(text, {.add_bos = {}, .parse_special = false});
    if (has_unknown && std::find(ids.begin(), ids.end(), *golden.spec.unk) != ids.end()) continue;
    EXPECT_EQ(tokenizer.decode(ids), text);
    ++compared;
  }
  EXPECT_GT(compared, has_unknown ? 50u : 1000u);
}

TEST_P(Goldens, DecodingWithMarkersGivesTheTextBack) {
  const std::string missing = tokenizer.missing_bytes();
  for (const GoldenIds& entry : golden.special) {
    const std::string& text = texts[entry.text];
    if (std::string_view(GetParam()) == "spm-unused" || text.find_first_of(missing) != text.npos) continue;
    if (golden.spec.kind == VocabSpec::Kind::sentencepiece && text.find(kSpaceMarkText) != text.npos)
      continue;
    EXPECT_EQ(tokenizer.decode(entry.ids, true), text);
  }
}

std::string vocabulary_name(const testing::TestParamInfo<const char*>& parameter) {
  std::string name = parameter.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, Goldens,
                         testing::Values("bpe-gpt-2", "bpe-smollm", "bpe-llama-bpe", "bpe-qwen2",
                                         "bpe-default", "spm-prefix", "spm-runs", "spm-unused"),
                         vocabulary_name);

}  // namespace
}  // namespace kvtide
