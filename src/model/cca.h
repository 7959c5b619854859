// cca.h: compressed convolutional attention: what happens to queries, keys and values between their
// projections and RoPE.
//
// With u_t the query heads and then the key heads of token t, side by side (channels):
//   d_t[c] = a[c][0] u_{t-1}[c] + a[c][1] u_t[c] + b[c]                      each channel by itself
//   y_t[o] = c[o] + sum_i (G[o][i][0] d_{t-1}[i] + G[o][i][1] d_t[i])         within each head
//   q_j = y_j + (qh_j + kh_g) / 2,  k_g = y_g + (mean_j qh_j + kh_g) / 2      j: the query heads of KV head g
//   q = sqrt(head_dim) q / |q|,     k = temperature_g sqrt(head_dim) k / |k|
// and the second half of the values (of all heads, side by side) is that of the token before. Before the
// first token u and the delayed values are 0 (so that d_{-1} = b).
// A layer therefore carries two tensors from token to token (state/recurrent.h): conv_state [channels][2], of
// the last two tokens, the older one first, and prev_value [kv_heads * head_dim / 2].
// A token's result depends on the tokens before it only: not on the chunk, not on threads.
// Source: "Compressed Convolutional Attention" (arXiv 2510.04476).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/cca_weights.h"
#include "model/config/config.h"
#include "state/state.h"

namespace kvtide {

// What the layers of such a model carry, two tensors per layer.
std::vector<RecurrentSpec> cca_tensors(const ModelConfig& config);

// Scratch rows of a step of n tokens, f32.
struct CcaScratch {
  float* u;  // [n + 2][channels]: two tokens of the past first
  float* d;  // [n + 1][channels]: one token of the past first
};

// The projections of a step's tokens, replaced in place by what is rotated and attended to.
struct CcaRows {
  float* q;  // [n][heads * head_dim]
  float* k;  // [n][kv_heads * head_dim]
  float* v;  // [n][kv_heads * head_dim]: current values in the first half, not yet delayed ones in the second
};

// One layer's part of some tokens: what the tokens before left, and who is told what these leave behind.
struct CcaCall {
  std::int64_t tokens = 0;
  std::span<const float> conv_state, prev_value;  // before the first token
  std::int64_t first_carried = 0;                 // the first token of which carry is told
  FunctionRef<void(std::int64_t token, std::span<const float> conv_state, std::span<const float> prev_value)>
      carry;
};
void mix_cca(const ModelConfig& config, const CcaWeights& weights, const Kernels& kernels, ThreadPool& pool,
             const CcaCall& call, const CcaScratch& scratch, const CcaRows& rows);
// The same for a layer of a step, which keeps what is carried. Throws Error(numeric) when that is not finite.
void mix_cca(const ModelConfig& config, const CcaWeights& weights, const Kernels& kernels, ThreadPool& pool,
             KvState::Step& step, int layer, const CcaScratch& scratch, const CcaRows& rows);

}  // namespace kvtide
