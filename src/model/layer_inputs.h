// layer_inputs.h: per-layer embeddings: what a token gives to every layer beside the residual stream (Gemma 4).
//
// With e the scaled embedding of a token, P numbers for each layer:
//   u = (norm(W e / sqrt(width)) + sqrt(P) * table[token]) / sqrt(2)       the norm is layer by layer
// and behind the feed-forward of a layer, with u of that layer:
//   x = (x + post_norm(W_out (gelu(W_gate x) * u))) * layer_scale
// Models without such numbers may have the scale alone.
// Ownership: weights refer to the panels of Weights.
// Thread rules: one caller; rows are spread over the pool.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvtide/types.h"
#include "model/config/config.h"
#include "model/decoder_context.h"
#include "model/layer_inputs_weights.h"
#include "model/row_steps.h"

namespace kvtide {

// u of the tokens, from their embeddings x [tokens][width]; values: [tokens][layers][layer_inputs].
void make_layer_inputs(const DecoderContext& context, RowSteps& steps, std::span<const TokenId> tokens,
                       const float* x, float* values);

}  // namespace kvtide
