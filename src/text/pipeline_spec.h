// pipeline_spec.h: the steps from a text to the symbols that BPE merges, as a tokenizer.json lists them.
// Plain data.
//
// Order: markers are cut out, each stretch between them is normalised, cut into words by the splits in turn,
// and every word is merged on its own. The meaning of each step is that of the `tokenizers` package.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvtide/types.h"
#include "text/pretokenize.h"

namespace kvtide {

struct NormalizerStep {
  enum class Kind { nfc, nfd, nfkc, nfkd, lowercase, prepend, replace };
  Kind kind = Kind::nfc;
  std::string from, to;  // replace; prepend: `to`, before a text that is not empty
};

struct SplitStep {
  enum class Kind {
    rule,         // a known regular expression, as a scanner of ours
    pattern,      // any other regular expression
    text,         // every occurrence of a text
    digits,       // numbers, one by one or run by run
    space_front,  // a space before a word that has none
    metaspace,    // spaces become a mark, at which words begin
  };
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  enum class Front { never, first, always };  // metaspace: which words get a mark in front

  Kind kind = Kind::rule;
  PreTokenizer rule = PreTokenizer::gpt2;
  std::string pattern;  // pattern, text; metaspace: the mark
  Behavior behavior = Behavior::isolated;
  bool invert = false;      // what matches is what lies between
  bool individual = false;  // digits: one by one
  Front front = Front::never;
  bool splits = true;  // metaspace
};

// A token that is cut out of the text before anything else.
struct AddedToken {
  TokenId id = -1;
  bool takes_space_before = false, takes_space_behind = false;
  bool whole_word = false;  // only where no letter or digit stands beside it
  bool normalized = false;  // is looked for in the normalised text
};

struct PipelineSpec {
  std::vector<NormalizerStep> normalizers;
  std::vector<SplitStep> splits;
  std::vector<AddedToken> added;
  // The model.
  bool byte_level = false;     // symbols are bytes, tokens are written in the byte-level alphabet
  bool byte_fallback = false;  // characters without a token are spelled in tokens <0x00> to <0xFF>
  bool fuse_unknown = false;   // neighbouring unknown characters become one unknown token
  bool whole_words = false;    // a word that is a token becomes that token, whatever the merges say
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // best first
};

// The steps of a byte-level vocabulary of a GGUF file: the pre-tokeniser of that name, and merges written
// "left right". Throws Error: unsupported, bad_format.
PipelineSpec byte_level_pipeline(std::string_view pre, const std::vector<std::string_view>& merges);
// Those of Gemma 4's: spaces become marks, and characters are merged over the whole stretch. Throws Error(bad_format).
PipelineSpec marked_spaces_pipeline(const std::vector<std::string_view>& merges);

}  // namespace kvtide
