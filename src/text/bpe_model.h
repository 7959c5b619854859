// bpe_model.h: BPE by merges: one word to token ids.
//
// A word is its symbols (bytes, or characters), merged pair by pair, best merge first. A symbol without a
// token is spelled in byte tokens, becomes the unknown token or is left out, in this order of preference, as
// the `tokenizers` package does.
// Ownership: refers to the texts of the vocabulary, which the caller keeps alive.
// Thread rules: const from any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/merging.h"
#include "text/pipeline_spec.h"
#include "text/token_index.h"
#include "text/vocab.h"
#include "text/word_cache.h"

namespace kvtide {

class BpeModel {
 public:
  // `texts` holds, per token, the bytes that the token stands for; `plain` indexes the tokens that merging
  // may produce and `find` any token by its stored text. Throws Error(bad_format) for a merge that names an
  // absent token, and for a vocabulary that can spell nothing.
  BpeModel(const PipelineSpec& spec, std::optional<TokenId> unknown, const TokenTexts& texts,
           const TextIndex& plain, FunctionRef<std::optional<TokenId>(std::string_view)> find);

  // What one call of encode carries from word to word.
  struct Scratch {
    MergeRun run;  // empty between words
    WordCache words;
  };
  // Appends the ids of a word of valid UTF-8.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

  std::string missing_bytes() const;  // of a byte-level vocabulary: the bytes that no token spells

 private:
  void merge_word(std::string_view word, MergeRun& run, std::vector<TokenId>& out) const;
  void finish_run(MergeRun& run, std::vector<TokenId>& out) const;

  const TokenTexts& texts_;
  const TextIndex& plain_;
  bool byte_level_, whole_words_, fuse_unknown_;
  std::optional<TokenId> unknown_;
  bool has_fallback_ = false;
  std::array<TokenId, 256> byte_tokens_;  // -1: missing; tokens of single bytes, or those of the fallback
  PairIndex merges_;
  BytePairs joined_;
};

}  // namespace kvtide
