// zenz_vocabulary_test.cpp: what is known of the tokenizer of zenz, on a vocabulary of the same shape that
// the test makes: 6,000 tokens, 24 byte values without one, characters of three bytes as the longest tokens,
// tags of the private use area as three byte tokens, and a config.json that names the wrong end of a text.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/json/json_fields.h"
#include "base/json/json_value.h"
#include "kvtide/tokenizer.h"
#include "model/folder_vocab.h"
#include "tests/formats/temporary_folder.h"
#include "text/utf8.h"

namespace kvtide {
namespace {

constexpr TokenId kUnknown = 0, kPad = 1, kBegin = 2, kEnd = 3;

// How a byte is written in the byte-level alphabet.
char32_t written(unsigned byte) {
  const auto stays = [](unsigned b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  };
  if (stays(byte)) return byte;
  char32_t next = 0x100;
  for (unsigned b = 0; b < byte; ++b) next += stays(b) ? 0 : 1;
  return next;
}

std::string written_text(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) append_utf8(out, written(static_cast<unsigned char>(byte)));
  return out;
}

std::string quoted_json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// Bytes that UTF-8 never has, and eleven control characters, the space and the line feed among them.
const std::set<unsigned>& missing() {
  static const std::set<unsigned> kMissing = {0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07,
                                              0x08, 0x0a, 0x20, 0xc0, 0xc1, 0xf5, 0xf6, 0xf7,
                                              0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff};
  return kMissing;
}

struct Made {
  std::vector<std::string> tokens = {"[UNK]", "[PAD]", "<s>", "</s>"}, merges;
  std::vector<std::string> characters;  // of three bytes, each a token of its own

  Made() {
    std::vector<char32_t> alphabet;
    for (unsigned byte = 0; byte < 256; ++byte)
      if (!missing().contains(byte)) alphabet.push_back(written(byte));
    std::sort(alphabet.begin(), alphabet.end());
    for (const char32_t c : alphabet) append_utf8(tokens.emplace_back(), c);
    // 366 pairs of first bytes, then 5,398 characters that begin with one of them.
    std::vector<std::string> pairs;
    for (unsigned first = 0xe3; first <= 0xe9 && pairs.size() < 366; ++first)
      for (unsigned second = 0x80; second < 0xc0 && pairs.size() < 366; ++second) {
        pairs.push_back({static_cast<char>(first), static_cast<char>(second)});
        add(pairs.back().substr(0, 1), pairs.back().substr(1));
      }
    for (unsigned third = 0x80; third < 0xc0; ++third)
      for (const std::string& pair : pairs) {
        if (characters.size() == 5398) return;
        characters.push_back(pair + static_cast<char>(third));
        add(pair, std::string(1, static_cast<char>(third)));
      }
  }
  void add(const std::string& left, const std::string& right) {
    merges.push_back(written_text(left) + " " + written_text(right));
    tokens.push_back(written_text(left + right));
  }
  std::string json() const {
    std::string vocab, list, added;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      vocab += (i > 0 ? "," : "") + quoted_json(tokens[i]) + ":" + std::to_string(i);
    for (const std::string& merge : merges) list += (list.empty() ? "" : ",") + quoted_json(merge);
    for (std::size_t i = 0; i < 4; ++i)
      added += std::string(i > 0 ? "," : "") + R"({"id":)" + std::to_string(i) + R"(,"content":")" +
               tokens[i] +
               R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true})";
    return R"({"version":"1.0","added_tokens":[)" + added +
           R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
           R"("use_regex":true},"post_processor":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,)"
           R"("use_regex":true},"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)"
           R"("use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
           R"("continuing_subword_prefix":"","end_of_word_suffix":"","fuse_unk":false,"byte_fallback":false,)"
           R"("vocab":{)" +
           vocab + R"(},"merges":[)" + list + "]}}";
  }
};

class Zenz : public ::testing::Test {
 protected:
  Zenz()
      : settings_(JsonValue::parse(
            R"({"model_type":"gpt2","vocab_size":6000,"bos_token_id":1,"eos_token_id":2,"pad_token_id":1})",
            "config.json")) {
    const std::string json = made_.json();
    folder_.write("tokenizer.json", std::as_bytes(std::span(json)));
    vocab_.emplace(folder_.path(""), JsonFields(settings_, "config.json"), 6000);
    tokenizer_.emplace(vocab_->spec());
  }
  Made made_;
  testing::TemporaryFolder folder_;
  JsonValue settings_;
  std::optional<FolderVocab> vocab_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_F(Zenz, Has6000TokensAndTheMergesThatMakeThem) {
  EXPECT_EQ(made_.merges.size(), 5764u);
  EXPECT_EQ(tokenizer_->size(), 6000u);
}

TEST_F(Zenz, TheTokenizerSaysWhereATextEnds_AndConfigJsonIsOverruledAloud) {
  EXPECT_EQ(tokenizer_->eos(), kEnd);
  EXPECT_EQ(tokenizer_->bos(), kBegin);
  EXPECT_TRUE(tokenizer_->ends_text(kEnd));
  EXPECT_FALSE(tokenizer_->ends_text(kBegin));
  EXPECT_FALSE(tokenizer_->adds_bos());
  ASSERT_EQ(vocab_->notes().size(), 2u);
  EXPECT_EQ(vocab_->notes()[0],
            "config.json says that 'bos_token_id' is 1, the tokenizer says 2 '<s>'; the tokenizer is right");
  EXPECT_EQ(vocab_->notes()[1],
            "config.json says that 'eos_token_id' is 2, the tokenizer says 3 '</s>'; the tokenizer is right");
}

TEST_F(Zenz, EveryCharacterOfTheVocabularyIsOneToken_AndNoTokenIsLonger) {
  ASSERT_EQ(made_.characters.size(), 5398u);
  std::string all;
  for (const std::string& character : made_.characters) {
    const auto ids = tokenizer_->encode(character);
    ASSERT_EQ(ids.size(), 1u) << character;
    EXPECT_EQ(tokenizer_->piece(ids[0]), character);
    all += character;
  }
  EXPECT_EQ(tokenizer_->encode(all).size(), 5398u);
  EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(all)), all);
}

TEST_F(Zenz, TagsOfThePrivateUseAreaAreThreeByteTokens) {
  EXPECT_EQ(tokenizer_->encode("\uee00"), (std::vector<TokenId>{172, 120, 202}));
  EXPECT_EQ(tokenizer_->encode("\uee01"), (std::vector<TokenId>{172, 120, 203}));
  EXPECT_EQ(tokenizer_->encode("\uee02"), (std::vector<TokenId>{172, 120, 204}));
}

TEST_F(Zenz, TwentyFourBytesHaveNoToken_SoSpacesAndLineFeedsAreLostUnlessReplaced) {
  std::string bytes;
  for (const unsigned byte : missing()) bytes += static_cast<char>(byte);
  EXPECT_EQ(tokenizer_->missing_bytes(), bytes);
  ASSERT_EQ(bytes.size(), 24u);
  const std::string kana = "\u30cb\u30ca\u30c9";  // in the vocabulary: nothing but its tokens
  EXPECT_EQ(tokenizer_->encode("\u30cb \u30ca\n\u30c9"), tokenizer_->encode(kana));
  EXPECT_EQ(tokenizer_->encode(kana).size(), 3u);
  // The wide space is a character like any other.
  EXPECT_EQ(tokenizer_->encode("\u3000").size(), 1u);
}

TEST_F(Zenz, MarkersInATextAreTheirTokens) {
  EXPECT_EQ(tokenizer_->encode("<s>[UNK][PAD]</s>"), (std::vector<TokenId>{kBegin, kUnknown, kPad, kEnd}));
  EXPECT_EQ(tokenizer_->encode("<s>", {.add_bos = {}, .parse_special = false}).size(), 3u);
}

}  // namespace
}  // namespace kvtide
