// experts.h: a feed-forward of several experts of which a router chooses some for every token.
//
// The usual router is one matrix R. With m the normed input of a token:
//   p   = softmax(R m), or the sigmoid of every element
//   E   = the `chosen` experts with the largest p + balance; where there is no balance, the largest p
//         (DeepSeek V3: of the experts of the groups whose two largest are largest)
//   s_e = p_e, where shares sum to 1 divided by the sum of p over E (+ epsilon), times share_scale
//   out = sum over E, the best first, of s_e * down_e(silu(gate_e m) * up_e m)
// and behind them the output of one expert that every token passes, where there is one; some models scale it by
// sigmoid(g m).
//
// That of ZAYA1 has layers and a memory from layer to layer. With z the router's width:
//   z   = D m + b; from layer 1 on plus carry * (z of the same token in the layer before)
//   p   = softmax(W3 gelu(W2 gelu(W1 rms(z) + c1) + c2)) over the experts and one slot more; gelu is the
//         erf form
//   e   = the index with the largest p + balance; the balance counts for this choice only
//   out = p_e * down_e(silu(gate_e m) * up_e m); of the slot behind the experts p_e * m, or zeros (SkipSlot)
// Gemma 4's router sees another norm of the stream, and its shares are multiplied by a number of the expert.
// Some models' experts have no gate: down_e(activation(up_e m)).
// With biases they are added to R m and to every product of an expert. gpt-oss has another gate (ClampedGate).
// The router is computed in f32, so that the choice does not hang on the rounding of activations. Tokens are
// grouped by expert, which changes no bit of any of them: a row of a matrix product does not depend on its
// neighbours.
// Ownership: weights refer to the panels of Weights.
// Thread rules: one step at a time per scratch.
// Source: the published description of ZAYA1 (Zyphra, 2025); "Mixture-of-Depths" (Raposo et al. 2024).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "model/config/config.h"
#include "model/weight_source.h"

namespace kvtide {

struct Expert {
  WeightMatrix gate, up, down;
};

// Of models that have them; else empty.
struct ExpertBiases {
  std::vector<float> router;    // [slots]
  std::vector<float> gate, up;  // [experts][inside an expert]
  std::vector<float> down;      // [experts][width]
};

struct ExpertsWeights {
  WeightMatrix router_out;                                // all of a router of one matrix
  WeightMatrix router_down, router_first, router_second;  // before that in ZAYA1
  // [router_width]; carry: empty in layer 0
  std::vector<float> down_bias, carry, norm, first_bias, second_bias;
  std::vector<float> balance;  // [slots]; empty: none
  std::vector<float>
      router_scale;  // [width], the weight of a norm of the router's own input; empty: it has none
  std::vector<float> expert_scale;  // [experts], by which shares are multiplied; empty: they stay
  std::vector<Expert> experts;
  ExpertBiases biases;
  Expert shared;                    // of models that have one
  std::vector<float> shared_share;  // [width]; empty: all of its output counts
};

ExpertsWeights load_experts(const ModelConfig& config, int layer, WeightSource& source);

// Rows of scratch for every token of a step, f32. `states` is kept from layer to layer of a step.
struct ExpertsScratch {
  float *states, *router_a, *router_b;  // [n][router_width]
  float* scores;                        // [n][slots]
  float *sorted, *outputs;              // [n * chosen][width]
  float* shared;                        // [n][width]
  float *gate, *up;  // [n * chosen][inside an expert]; before that [n][inside the shared one]
  static std::int64_t floats_per_token(const ModelConfig& config);  // of the arrays up to `outputs`
  // Hands out consecutive pieces of `memory` for n tokens; gate and up are the caller's.
  static ExpertsScratch in(float* memory, const ModelConfig& config, std::int64_t n);
};

// What the forward pass lends: its matrix products.
struct ExpertsContext {
  const ModelConfig& config;
  const ExpertsWeights& weights;
  const ElementwiseRow& rows;
  ThreadPool& pool;
  FunctionRef<void(const Activations& x, std::span<const MatmulJob> jobs)> multiply;
  const float* routed = nullptr;  // [..][width]: what the router sees instead of x
};

// Tokens [first, last) of the step: x [..][width] normed inputs, replaced by the outputs.
void run_experts(const ExpertsContext& context, const ExpertsScratch& scratch, std::int64_t first,
                 std::int64_t last, float* x);

}  // namespace kvtide
