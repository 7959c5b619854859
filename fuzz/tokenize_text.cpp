// tokenize_text.cpp: libFuzzer target for text of any bytes over two tiny vocabularies.
//
// Valid UTF-8 has to survive encode and decode in every pre-tokeniser; anything else has to be refused with
// bad_text.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzzing.h"
#include "kvtide/error.h"
#include "kvtide/tokenizer.h"
#include "text/utf8.h"
#include "text/vocab.h"

using kvtide::fuzzing::require;

namespace {

using kvtide::TokenType;
using kvtide::VocabSpec;

// A vocabulary that owns its texts.
struct Vocabulary {
  std::vector<std::string> texts, merges;
  VocabSpec spec;

  kvtide::Tokenizer build(std::string_view pre) {
    spec.pre = pre;
    spec.tokens.assign(texts.begin(), texts.end());
    spec.merges.assign(merges.begin(), merges.end());
    return kvtide::Tokenizer(spec);
  }
  void add(std::string text, TokenType type = TokenType::normal, float score = 0) {
    texts.push_back(std::move(text));
    spec.types.push_back(type);
    spec.scores.push_back(score);
  }
};

Vocabulary byte_level() {
  Vocabulary vocabulary;
  vocabulary.spec.kind = VocabSpec::Kind::bpe;
  char32_t shifted = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    std::string text;
    kvtide::append_utf8(text, printable ? byte : shifted++);
    vocabulary.add(text);
  }
  for (const std::string_view pair :
       {"a a", "aa a", "aa aa", "\xc4\xa0 a", "1 1", "\xc3\x90 \xc2\xb0", "' s"}) {
    std::string joined(pair);
    joined.erase(joined.find(' '), 1);
    vocabulary.merges.emplace_back(pair);
    vocabulary.add(joined);
  }
  vocabulary.add("<|x|>", TokenType::control);
  return vocabulary;
}

Vocabulary sentencepiece() {
  Vocabulary vocabulary;
  vocabulary.spec.kind = VocabSpec::Kind::sentencepiece;
  vocabulary.spec.add_space_prefix = true;
  vocabulary.add("<unk>", TokenType::unknown);
  vocabulary.add("</s>", TokenType::control);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    vocabulary.add(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", TokenType::byte);
  }
  for (const std::string_view text : {"\n\n", "\xe2\x96\x81\xe2\x96\x81", "<b>"}) {
    vocabulary.add(std::string(text), TokenType::user_defined);
  }
  float score = 0;
  for (const std::string_view text : {"a", "b", "\xe2\x96\x81", "aa", "ab",
                                      "\xe2\x96\x81"
                                      "a",
                                      "aaa", "ba", "\xd0\xb0"}) {
    vocabulary.add(std::string(text), TokenType::normal, score -= 1);
  }
  vocabulary.add("aab", TokenType::unused, -1);
  return vocabulary;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<kvtide::Tokenizer> tokenizers = [] {
    std::vector<kvtide::Tokenizer> all;
    for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2", "default"})
      all.push_back(byte_level().build(pre));
    all.push_back(sentencepiece().build(""));
    return all;
  }();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto invalid = kvtide::find_invalid_utf8(text);
  const bool has_mark =
      text.find("\xe2\x96\x81") != text.npos;  // SentencePiece's own space mark comes back as a space
  for (std::size_t i = 0; i < tokenizers.size(); ++i) {
    try {
      const auto ids = tokenizers[i].encode(text, {.add_bos = {}, .parse_special = false});
      require(!invalid);
      if (i + 1 < tokenizers.size() || !has_mark) require(tokenizers[i].decode(ids) == text);
    } catch (const kvtide::Error& error) {
      require(invalid && error.code() == kvtide::ErrorCode::bad_text);
    }
  }
  kvtide::Utf8Stream stream;
  std::string shown;
  for (const char byte : text) shown += stream.push({&byte, 1});
  shown += stream.finish();
  require(!kvtide::find_invalid_utf8(shown) && (invalid || shown == text));
  return 0;
}
