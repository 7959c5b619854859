// byte_level_bpe.h: byte-level BPE, the tokenizers of GPT-2 and its descendants.
//
// A text is cut into words (pretokenize.h); a word is its bytes, merged pair by pair, best merge first. Where
// a word meets a byte for which the vocabulary has no token, that byte is left out, as the `tokenizers`
// package does. Ownership: refers to the texts of the vocabulary, which the caller keeps alive. Thread rules:
// const from any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/merging.h"
#include "text/pretokenize.h"
#include "text/token_index.h"
#include "text/vocab.h"

namespace kvtide {

class ByteLevelBpe {
 public:
  // `texts` holds, per token of `spec`, the bytes that the token stands for; `plain` indexes the tokens that
  // are spelled in the byte-level alphabet and `find` any token by its stored text. Throws Error(bad_format)
  // for a merge that is malformed or names an absent token.
  ByteLevelBpe(const VocabSpec& spec, const TokenTexts& texts, const TextIndex& plain,
               FunctionRef<std::optional<TokenId>(std::string_view)> find);

  // Appends the ids of a fragment of valid UTF-8 without markers.
  void encode(std::string_view fragment, std::vector<TokenId>& out) const;

  std::string missing_bytes() const;  // the bytes that no token spells

 private:
  void encode_word(std::string_view word, MergeRun& run, std::vector<TokenId>& out) const;
  void finish_run(MergeRun& run, std::vector<TokenId>& out) const;

  const TokenTexts& texts_;
  const TextIndex& plain_;
  PreTokenizerChoice pre_;
  std::array<TokenId, 256> byte_tokens_;  // -1: missing
  PairIndex merges_;
  BytePairs joined_;
};

}  // namespace kvtide
