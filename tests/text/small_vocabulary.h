// small_vocabulary.h: vocabularies of a few tokens, put together by hand in the tests that use them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvtide/error.h"
#include "kvtide/tokenizer.h"
#include "text/utf8.h"
#include "text/vocab.h"

namespace kvtide {

// Owns the texts that its spec refers to.
class SmallVocabulary {
 public:
  // Ids 0 to 255 are the bytes, in the order of their values.
  static SmallVocabulary byte_level(std::string pre = "gpt-2") {
    SmallVocabulary vocabulary;
    vocabulary.spec.kind = VocabSpec::Kind::bpe;
    vocabulary.spec.pre = std::move(pre);
    for (unsigned byte = 0; byte < 256; ++byte) vocabulary.add(byte_level_text(byte));
    return vocabulary;
  }

  // Id 0 is <unk>, 1 is <s> (bos), 2 is </s> (eos), 3 to 258 are the bytes.
  static SmallVocabulary sentencepiece() {
    SmallVocabulary vocabulary;
    vocabulary.spec.kind = VocabSpec::Kind::sentencepiece;
    vocabulary.add("<unk>", TokenType::unknown);
    vocabulary.spec.bos = vocabulary.add("<s>", TokenType::control);
    vocabulary.spec.eos = vocabulary.add("</s>", TokenType::control);
    constexpr std::string_view kHex = "0123456789ABCDEF";
    for (unsigned byte = 0; byte < 256; ++byte) {
      vocabulary.add(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", TokenType::byte);
    }
    return vocabulary;
  }

  TokenId add(std::string text, TokenType type = TokenType::normal, float score = 0) {
    texts.push_back(std::move(text));
    spec.types.push_back(type);
    spec.scores.push_back(score);
    return static_cast<TokenId>(texts.size()) - 1;
  }

  // Adds the merge and the token that it makes.
  TokenId merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right);
  }

  Tokenizer build() {
    spec.tokens.assign(texts.begin(), texts.end());
    spec.merges.assign(merges.begin(), merges.end());
    return Tokenizer(spec);
  }

  static std::string byte_level_text(unsigned byte) {
    unsigned shifted = 0x100;
    for (unsigned b = 0; b < byte; ++b) shifted += is_printable(b) ? 0 : 1;
    std::string text;
    append_utf8(text, is_printable(byte) ? byte : shifted);
    return text;
  }

  std::vector<std::string> texts, merges;
  VocabSpec spec;

 private:
  static bool is_printable(unsigned byte) {
    return (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
  }
};

// What encode and the constructor throw, as "code: message", or "" when they do not.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.message();
  }
  return "";
}

}  // namespace kvtide
