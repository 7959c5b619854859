// vocab.h: what a tokenizer is made from, as plain data. Filled by the model floor from a file's metadata.
//
// The views need to stay valid only during the constructor of Tokenizer, which copies what it keeps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/types.h"
#include "text/pipeline_spec.h"

namespace kvtide {

// Kinds of token, numbered as in GGUF's tokenizer.ggml.token_type.
enum class TokenType : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct VocabSpec {
  // tokenizer.ggml.model: "gpt2" and "llama"; pipeline: tokenizer.json, which says each step itself
  enum class Kind { bpe, sentencepiece, pipeline };
  Kind kind = Kind::bpe;
  std::string pre;                       // pre-tokeniser of a bpe vocabulary: "smollm", "gpt-2", "qwen2", ...
  std::vector<std::string_view> tokens;  // index = TokenId
  std::vector<float> scores;             // sentencepiece only; one per token
  std::vector<TokenType> types;          // one per token, or empty: all normal
  std::vector<std::string_view> merges;  // bpe only: "left right", best first
  PipelineSpec pipeline;                 // kind pipeline only
  std::optional<TokenId> bos, eos, eot, unk;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix =
      false;  // sentencepiece: a space before the text (not before text after a special token)
};

}  // namespace kvtide
