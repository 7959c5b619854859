// pretokenize.h: cuts text into the words inside which byte-level BPE merges.
//
// The published rules are regular expressions; here each is a scanner written by hand that reads every
// character a bounded number of times, so no text can make it slow or deep.
// Thread rules: free functions from any thread.
// Invariant: the words, joined, are the text.
#pragma once

#include <string_view>

#include "base/function_ref.h"

namespace kvtide {

enum class PreTokenizer {
  gpt2,    // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  smollm,  // every number alone, then gpt2 on what lies between
  llama3,  // contractions in any case, an optional sign before letters, numbers by three, newlines end a word
  qwen2,   // llama3 with every number alone
  fallback,  // punctuation runs, then gpt2, then numbers alone, then digits by three: what "default" means
};

struct PreTokenizerChoice {
  PreTokenizer rule;
  bool whole_words;  // a word that is a token becomes that token, whatever the merges say
};

// From the name in a file ("llama-bpe"). Throws Error(unsupported) that lists the names it knows.
PreTokenizerChoice find_pre_tokenizer(std::string_view name);

// `text` has to be valid UTF-8. Calls `word` from left to right; words are never empty.
void pre_tokenize(PreTokenizer rule, std::string_view text, FunctionRef<void(std::string_view)> word);

}  // namespace kvtide
