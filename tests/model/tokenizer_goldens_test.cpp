// tokenizer_goldens_test.cpp: ids equal to those of the package `tokenizers`, for every kind of
// tokenizer.json in tests/goldens/tokenizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "formats/text_file.h"
#include "model/tokenizer_json.h"
#include "model/vocab_reader.h"
#include "tests/model/sample_model.h"
#include "tests/text/golden_vocabulary.h"

namespace kvtide {
namespace {

const std::string kFolder = KVTIDE_GOLDENS "/tokenizers/";

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (entry.path().extension() == ".json") out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

// A tokenizer.json and what the reference says; the file's own size is that of the model.
struct Case {
  JsonValue json;
  std::vector<std::string> notes;
  VocabSpec spec;
  std::vector<GoldenIds> special, plain, whole;
  std::vector<std::uint32_t> hashes;

  explicit Case(const std::string& name)
      : json(JsonValue::parse(read_whole_text(kFolder + name + ".json"), name)) {
    std::int64_t size = static_cast<std::int64_t>(json.find("model")->find("vocab")->object()->size());
    for (const JsonValue& added : *json.find("added_tokens")->list())
      size = std::max(size, *added.find("id")->integer() + 1);
    spec = read_tokenizer_json(json, name, size, notes);
    std::ifstream file(kFolder + name + ".golden");
    for (std::string line; std::getline(file, line);) {
      std::istringstream fields(line);
      std::string key, word;
      fields >> key;
      if (key == "hashes") {
        while (fields >> word) hashes.push_back(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16)));
      } else if (key != "#") {
        GoldenIds entry{};
        fields >> entry.text;
        for (TokenId id = 0; fields >> id;) entry.ids.push_back(id);
        (key == "special" ? special : key == "plain" ? plain : whole).push_back(std::move(entry));
      }
    }
  }
  // Without what a template puts around a text.
  Tokenizer bare() const {
    VocabSpec without = spec;
    without.add_bos = without.add_eos = false;
    return Tokenizer(without);
  }
};

class TokenizerGoldens : public ::testing::TestWithParam<std::string> {
 protected:
  TokenizerGoldens() : texts(read_golden_texts()), golden(GetParam()) {}
  std::vector<std::string> texts;
  Case golden;
};

TEST_P(TokenizerGoldens, MarkersAsTokens_GivesTheReferenceIds) {
  const Tokenizer tokenizer = golden.bare();
  ASSERT_GT(golden.special.size(), 40u);
  for (const GoldenIds& entry : golden.special)
    EXPECT_EQ(tokenizer.encode(texts[entry.text]), entry.ids)
        << "text " << entry.text << ": " << texts[entry.text];
}

TEST_P(TokenizerGoldens, MarkersAsText_GivesTheReferenceIds) {
  const Tokenizer tokenizer = golden.bare();
  ASSERT_GT(golden.plain.size(), 5u);
  for (const GoldenIds& entry : golden.plain)
    EXPECT_EQ(tokenizer.encode(texts[entry.text], {.add_bos = {}, .parse_special = false}), entry.ids)
        << "text " << entry.text << ": " << texts[entry.text];
}

TEST_P(TokenizerGoldens, EveryTextHasTheReferenceHash) {
  const Tokenizer tokenizer = golden.bare();
  ASSERT_GT(golden.hashes.size(), 600u);
  for (std::size_t i = 0; i < golden.hashes.size(); ++i)
    EXPECT_EQ(hash_of(tokenizer.encode(texts[i])), golden.hashes[i]) << "text " << i << ": " << texts[i];
}

TEST_P(TokenizerGoldens, TheTemplatePutsItsTokensAroundAText) {
  const Tokenizer tokenizer(golden.spec);
  ASSERT_EQ(golden.whole.size(), 1u);
  EXPECT_EQ(tokenizer.encode(texts[golden.whole[0].text]), golden.whole[0].ids);
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerGoldens, ::testing::ValuesIn(names()), test_name);

// What a converter makes of such a tokenizer.json.
testing::Bytes as_gguf(const VocabSpec& spec) {
  std::vector<std::string> tokens(spec.tokens.begin(), spec.tokens.end()), merges;
  std::vector<std::int32_t> types;
  for (const TokenType type : spec.types) types.push_back(static_cast<std::int32_t>(type));
  for (const auto& [left, right] : spec.pipeline.merges)
    merges.push_back(std::string(left) + " " + std::string(right));
  return testing::sample_model()
      .set("tokenizer.ggml.model", std::string("gemma4"))
      .drop("tokenizer.ggml.pre")
      .drop("tokenizer.ggml.add_bos_token")
      .set_strings("tokenizer.ggml.tokens", tokens)
      .set_array("tokenizer.ggml.token_type", types)
      .set_strings("tokenizer.ggml.merges", merges)
      .set("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(*spec.bos))
      .build()
      .bytes;
}

TEST(TokenizerGoldenFiles, AGgufFileOfGemma4_GivesTheIdsOfItsFolder) {
  const Case golden("gemma");
  const testing::Bytes bytes = as_gguf(golden.spec);
  const GgufFile file = GgufFile::from_bytes(bytes, "gemma4.gguf");
  VocabSpec spec = read_vocab(file);
  EXPECT_TRUE(spec.add_bos);
  EXPECT_FALSE(spec.add_space_prefix);
  const std::vector<std::string> texts = read_golden_texts();
  ASSERT_EQ(golden.whole.size(), 1u);
  EXPECT_EQ(Tokenizer(spec).encode(texts[golden.whole[0].text]), golden.whole[0].ids);
  spec.add_bos = false;
  const Tokenizer tokenizer(spec), folder = golden.bare();
  ASSERT_GT(golden.hashes.size(), 600u);
  for (std::size_t i = 0; i < golden.hashes.size(); ++i) {
    const std::vector<TokenId> ids = tokenizer.encode(texts[i]);
    EXPECT_EQ(hash_of(ids), golden.hashes[i]) << "text " << i << ": " << texts[i];
    EXPECT_EQ(tokenizer.decode(ids), folder.decode(ids)) << "text " << i;
  }
  for (const GoldenIds& entry : golden.plain)
    EXPECT_EQ(tokenizer.encode(texts[entry.text], {.add_bos = {}, .parse_special = false}), entry.ids);
}

TEST(TokenizerGoldenFiles, CoverEveryComponentThatIsKnown) {
  std::set<std::string> seen;
  for (const std::string& name : names()) {
    const std::string text = read_whole_text(kFolder + name + ".json");
    for (const char* type : {"ByteLevel", "Metaspace", "Digits", "Split", "Sequence", "NFC", "NFD", "NFKC",
                             "Lowercase", "Prepend", "Replace", "ByteFallback", "TemplateProcessing",
                             "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"})
      if (text.find(std::string("\"") + type + "\"") != text.npos) seen.insert(type);
  }
  EXPECT_EQ(seen.size(), 18u);
}

}  // namespace
}  // namespace kvtide
