// convolved_heads.h: compressed convolutional attention (model/cca.h) up to RoPE, as operations of a package.
//
// Two states go on beside keys and values, as those of the shards do (kvtide/shard.h): conv_state [1, channels, 2], the queries
// and keys of the last two tokens, the older one first, and prev_value [1, kv_heads * head_dim / 2]. Both are overwritten by every
// call. So a token cannot be taken back by its slot alone.
// Norms are computed in f32. Weights of convolutions stay f16.
// Errors: numeric: a number that f16 cannot hold.
// Thread rules: one caller.
#pragma once

#include <string>

#include "coreml/export/weight_constants.h"
#include "coreml/write/operations.h"
#include "model/config/config.h"
#include "model/weights.h"

namespace kvtide::coreml {

struct ConvolvedHeads {
  std::string query, key, value;       // [1, heads or kv_heads, T, head_dim], not yet rotated
  std::string conv_state, prev_value;  // names of the states
};

// `normed`: [1, T, width]. `layer`: begins the names of its constants; `behind`: ends those of its states.
ConvolvedHeads convolved_heads(FunctionBuilder& f, const ModelConfig& config, const LayerWeights& weights,
                               const WeightConstants& constants, const std::string& normed,
                               const std::string& layer, const std::string& behind);

}  // namespace kvtide::coreml
