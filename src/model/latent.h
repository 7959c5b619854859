// latent.h: multi-head latent attention: what DeepSeek V3 and its relatives keep is one row for all heads.
//
// With m_t the normed input of token t:
//   [q_h; p_h] = W_q rms(W_a m), or W_q m          `nope` and `rope` elements of head h
//   [c; r]     = W_kv m, c = rms(c)                the latent, `rank` elements, and the part that is rotated
//   key of head h = [K_h c; rot(r)], value = V_h c, query = [q_h; rot(p_h)]
// Only [rot(r); c] is kept, as the one KV head of the layer: K_h and V_h are absorbed. The query of head h becomes
// [rot(p_h); K_h^T q_h], attention gives a mean of latents, and V_h makes the head's output of it.
// A state's values are its keys: what attention makes of the rotated part is left out. So a row is kept once, unless keys
// and values have two types or the memory is procedural; then values are the latents behind zeros.
// Source: "DeepSeek-V2" (DeepSeek-AI, 2024).
#pragma once

#include <cstdint>

#include "model/decoder_context.h"
#include "model/latent_scratch.h"
#include "model/latent_weights.h"
#include "model/row_steps.h"

namespace kvtide {

// Where the forward pass has its rows: of a head of `head_dim` = rope + rank elements.
struct LatentRows {
  float *q, *k, *v;  // [n][heads * head_dim], [n][head_dim] twice
};

// q, k and v of `count` normed inputs, not yet rotated.
void project_latents(const DecoderContext& context, RowSteps& steps, const LatentWeights& weights,
                     const float* normed, std::int64_t count, const LatentScratch& scratch,
                     const LatentRows& rows);
// values of rows [skip, count) from what attention made of the latents, [count][heads * head_dim].
void expand_latents(const DecoderContext& context, RowSteps& steps, const LatentWeights& weights,
                    const float* mixed, std::int64_t skip, std::int64_t count, const LatentScratch& scratch);

}  // namespace kvtide
