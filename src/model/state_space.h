// state_space.h: Mamba-2's recurrence: what most layers of Granite 4 have instead of attention, and all of Mamba-2.
//
// With m_t the normed input of token t, z, u and d = the rows of W_in m (+ bias), and s = silu(the causal convolution of u,
// each channel by itself):
//   x, B, C = the parts of s: x of every head, B and C of every group of heads
//   t = softplus(d + time_bias), a = exp(decay * t)                        one number per head; decay is negative
//   S_t = a S_{t-1} + B_t (t x_t)^T                                       [state][head_dim]
//   out = W_out (rms(silu(z) * (C_t^T S_t + skip x_t)))                    the norm is over the channels of a group
// A layer carries two tensors from token to token (state/recurrent.h), zeros before the first:
//   conv_state [channels][taps - 1], u of the last tokens, the oldest first
//   recurrent_state [heads][state][head_dim]
// Tokens are taken one by one in any chunk, and heads are spread over the threads: no bit depends on either.
// Ownership: weights refer to the panels of Weights.
// Source: "Transformers are SSMs" (Dao, Gu 2024).
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "model/config/config.h"
#include "model/weight_source.h"
#include "state/state.h"

namespace kvtide {

struct StateSpaceWeights {
  WeightMatrix z, mixed;                            // [inner][width], [channels][width]
  WeightMatrix time;                                // [heads][width]
  WeightMatrix out;                                 // [width][inner]
  std::vector<float> z_bias, mixed_bias, out_bias;  // empty: none
  std::vector<float> taps, conv_bias;               // [taps][channels]; [channels], or empty
  std::vector<float> decay, time_bias, skip;        // [heads]; the bias is that of the projection as well
  std::vector<float> norm;                          // [inner]
};

StateSpaceWeights load_state_space(const ModelConfig& config, WeightSource& source);

// What such layers carry, two tensors each, in their order.
std::vector<RecurrentSpec> state_space_tensors(const ModelConfig& config);

// Rows of a step of n tokens, f32.
struct StateSpaceScratch {
  float *projected, *mixed;  // [n][channels]: projections; behind the convolution
  float *z, *out;            // [n][inner]: gates, which become the result; what the heads read
  float *time, *decay;       // [n][heads]
  StateSpaceScratch from(std::int64_t row, const StateSpaceConfig& space) const {
    return {projected + row * space.channels(), mixed + row * space.channels(), z + row * space.inner(),
            out + row * space.inner(),          time + row * space.heads,       decay + row * space.heads};
  }
};

// z of a step's tokens from their projections; the step keeps what is carried. Throws Error(numeric) when that is not
// finite.
void run_state_space(const ModelConfig& config, const StateSpaceWeights& weights, const ElementwiseRow& rows,
                     ThreadPool& pool, KvState::Step& step, int layer, const StateSpaceScratch& scratch);

}  // namespace kvtide
