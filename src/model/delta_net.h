// delta_net.h: gated delta nets: what most layers of Qwen 3.5 and Qwen 3 Next have instead of attention.
//
// With m_t the normed input of token t and s = silu(the causal convolution of W_qkv m, each channel by itself):
//   q, k, v = the heads of s; q and k divided by sqrt(|.|^2 + 1e-6), q by sqrt(key_dim) besides
//   a_t = exp(decay * softplus(W_alpha m + bias)), b_t = sigmoid(W_beta m)          one number per value head
//   S_t = a_t S_{t-1} + k_t (b_t (v_t - k_t^T a_t S_{t-1}))^T                       [key_dim][value_dim]
//   out = W_out (rms(q_t^T S_t) * silu(W_z m))
// Several value heads go with one head of queries and keys. A layer carries two tensors from token to token
// (state/recurrent.h), zeros before the first:
//   conv_state [channels][taps - 1], W_qkv m of the last tokens, the oldest first
//   recurrent_state [value_heads][key_dim][value_dim]
// Tokens are taken one by one in any chunk, and heads are spread over the threads: no bit depends on either.
// Ownership: weights refer to the panels of Weights.
// Source: "Gated Delta Networks" (Yang et al. 2024); the published configuration of Qwen3-Next (Qwen, 2025).
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

struct DeltaNetWeights {
  WeightMatrix qkv, z;                      // [channels][width], [value_width][width]
  WeightMatrix alpha, beta;                 // [value_heads][width]
  WeightMatrix out;                         // [width][value_width]
  std::vector<float> taps;                  // [taps][channels]
  std::vector<float> decay, time_bias;      // [value_heads]; decay is negative
  std::vector<float> norm;                  // [value_dim]
  std::vector<float> query_unit, key_unit;  // [key_dim], weights of norms that give them their length
};

DeltaNetWeights load_delta_net(const ModelConfig& config, WeightSource& source);

// What such layers carry, two tensors each, in their order.
std::vector<RecurrentSpec> delta_net_tensors(const ModelConfig& config);

// Rows of a step of n tokens, f32.
struct DeltaNetScratch {
  float *qkv, *mixed;   // [n][channels]: projections; behind the convolution
  float *z, *out;       // [n][value_width]: gates, which become the result; what the heads read
  float *alpha, *beta;  // [n][value_heads]
  DeltaNetScratch from(std::int64_t row, const DeltaNetConfig& net) const {
    return {qkv + row * net.channels(),    mixed + row * net.channels(),  z + row * net.value_width(),
            out + row * net.value_width(), alpha + row * net.value_heads, beta + row * net.value_heads};
  }
};

// z of a step's tokens from their projections; the step keeps what is carried. Throws Error(numeric) when that is not
// finite.
void run_delta_net(const ModelConfig& config, const DeltaNetWeights& weights, const ElementwiseRow& rows,
                   ThreadPool& pool, KvState::Step& step, int layer, const DeltaNetScratch& scratch);

}  // namespace kvtide
