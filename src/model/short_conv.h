// short_conv.h: gated short convolutions: what some layers of LFM2 have instead of attention.
//
// With m_t the normed input of token t, and b, c, x the thirds of W_in m:
//   u_t = b_t * x_t                                            element by element
//   y_t = c_t * (taps[0] u_{t-L+1} + ... + taps[L-1] u_t + bias)    each channel by itself
//   out = W_out y_t
// Before the first token u is 0. A layer carries one tensor from token to token (state/recurrent.h):
// conv_state [width][L - 1], u of the last tokens, the oldest first.
// A token's result depends on the tokens before it only: not on the chunk, not on threads.
// Ownership: weights refer to the panels of Weights.
// Source: "LFM2 Technical Report" (Liquid AI, 2025).
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "model/config/config.h"
#include "model/weight_source.h"
#include "state/state.h"

namespace kvtide {

struct ShortConvWeights {
  WeightMatrix in, out;                             // [3 * width][width], [width][width]
  std::vector<float> taps;                          // [L][width]
  std::vector<float> in_bias, conv_bias, out_bias;  // empty: none
};

ShortConvWeights load_short_conv(const ModelConfig& config, WeightSource& source);

// What such layers carry, one tensor each, in their order.
std::vector<RecurrentSpec> short_conv_tensors(const ModelConfig& config);

// Scratch rows of a step of n tokens, f32.
struct ShortConvScratch {
  float* thirds;  // [n][3 * width]: b, c and x
  float* u;       // [n + L - 1][width]: tokens of the past first
  float* y;       // [n][width]
};

// y of a step's tokens from their thirds; the step keeps what is carried. Throws Error(numeric) when that is not
// finite.
void run_short_conv(const ModelConfig& config, const ShortConvWeights& weights, ThreadPool& pool,
                    KvState::Step& step, int layer, const ShortConvScratch& scratch);

}  // namespace kvtide
