// sharded_generate.h: greedy text from shards, token by token or with drafts that are verified together.
//
// With drafts a call reads the newest token and up to t_max - 1 guessed ones; the guesses are kept as long as
// they are the tokens that the model itself would choose, and the rest is taken back. A column's bits do not
// depend on the other columns of its call, so the tokens are always those of plain greedy decoding.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kvtide/generate.h"
#include "shards/sharded.h"

namespace kvtide {

struct ShardedGenerateOptions {
  std::int64_t max_tokens = 256;
  bool draft = false;                          // changes only speed
  bool stop_at_end = true;                     // at tokens that end a text, which are not part of the answer
  std::function<bool(TokenId)> on_token = {};  // false: stop
};

struct ShardedGenerated {
  std::vector<TokenId> tokens;
  StopReason reason = StopReason::max_tokens;
  std::int64_t prompt_tokens = 0, calls = 0;  // calls: behind the prompt
  std::int64_t drafted = 0, accepted = 0;     // guessed tokens
  double prompt_seconds = 0.0, decode_seconds = 0.0;
  ShardSeconds decode;  // of the calls behind the prompt
};

// Reads the prompt behind what `model` holds, then writes. Throws Error: invalid_argument (an empty prompt),
// context_full (a prompt that does not fit), and what read() throws.
ShardedGenerated generate_greedy(ShardedModel& model, std::span<const TokenId> prompt,
                                 const ShardedGenerateOptions& options);

}  // namespace kvtide
