// decode_greedy.h: greedy text from a model in packages: the prompt once, then one token a call; and what that cost.
//
// Errors: those of Decoder::read; numeric when a logit is no number.
// Thread rules: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "coreml/decode/decoder.h"
#include "kvtide/generate.h"

namespace kvtide::coreml {

struct DecodeOptions {
  std::int64_t max_tokens = 64;
  std::int64_t chunk = 0;  // tokens of the prompt in a call at most; 0: as many as go
  std::function<bool(TokenId)> ends_text = {};
  std::function<bool(TokenId)> on_token = {};  // false: stop
};

struct Decoded {
  std::vector<TokenId> tokens;
  StopReason reason = StopReason::max_tokens;
  std::int64_t prompt_tokens = 0, prompt_calls = 0;
  double prompt_seconds = 0.0, decode_seconds = 0.0;
  std::int64_t decode_calls = 0;
  std::vector<PartTime> prompt_parts, decode_parts;  // of each package
};

Decoded decode_greedy(Decoder& decoder, std::span<const TokenId> prompt, const DecodeOptions& options);

}  // namespace kvtide::coreml
