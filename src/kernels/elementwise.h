// elementwise.h: what happens to one row of activations between two matrix products.
//
// Every function works on one row (or on one row at a time), so chunking cannot change a result. Shapes in
// brackets.
// Source of the formulas: LayerNorm (Ba et al. 2016), RMSNorm (Zhang, Sennrich 2019), RoPE (Su et al. 2021),
// SwiGLU/GeGLU (Shazeer 2020).
#pragma once

#include <cstdint>

#include "kernels/quant_rows.h"

namespace kvtide {

// One token of one head of a gated delta rule (model/delta_net.h).
struct DeltaStep {
  const float *query, *key;  // [keys]
  const float* value;        // [values]
  float decay, rate;
  std::int64_t keys, values;
};

// One token of one head of Mamba-2's recurrence (model/state_space.h).
struct ScanStep {
  const float *read, *write;  // [keys]
  const float* input;         // [values]
  float decay, rate, skip;
  std::int64_t keys, values;
};

// One token of a causal convolution of every channel by itself (model/channel_conv.h).
struct ConvStep {
  static constexpr int kMostTaps = 16;
  const float* x[kMostTaps];  // [n] each, the oldest first
  const float* taps;          // [count][n]
  const float* bias;          // [n]; nullptr: none
  int count;
  std::int64_t n;
};

struct ElementwiseRow {
  const char* isa;
  // y[n] = x / sqrt(mean(x^2) + epsilon) * weight
  void (*rms_norm)(const float* x, const float* weight, std::int64_t n, float epsilon, float* y) noexcept;
  // y[n] = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias
  void (*layer_norm)(const float* x, const float* weight, const float* bias, std::int64_t n, float epsilon,
                     float* y) noexcept;
  // Rotates pairs (i, i + half) of x[2 * half] in place by the angles with the given cosines and sines
  // [half].
  void (*rope)(float* x, const float* cosine, const float* sine, std::int64_t half) noexcept;
  // gate[n] = silu(gate) * up
  void (*silu_mul)(float* gate, const float* up, std::int64_t n) noexcept;
  // gate[n] = gelu(gate) * up, with the tanh form of gelu
  void (*gelu_mul)(float* gate, const float* up, std::int64_t n) noexcept;
  // x[n] *= sigmoid(gate)
  void (*sigmoid_mul)(float* x, const float* gate, std::int64_t n) noexcept;
  // y[n] = silu(bias + sum over taps of tap * x), the oldest first
  void (*convolve_silu)(const ConvStep& step, float* y) noexcept;
  // x[n] = cap * tanh(x / cap)
  void (*soft_cap)(float* x, float cap, std::int64_t n) noexcept;
  // x[n] = gelu(x), likewise
  void (*gelu)(float* x, std::int64_t n) noexcept;
  // after[keys][values] = decay * before + key (rate * (value - key^T (decay * before)))^T, and out[values] =
  // query^T after. `after` may be `before`. Sums go along the keys, first to last.
  void (*delta_rule)(const DeltaStep& step, const float* before, float* after, float* out) noexcept;
  // after[keys][values] = decay * before + write (rate * input)^T, and out[values] = read^T after + skip * input, likewise.
  void (*selective_scan)(const ScanStep& step, const float* before, float* after, float* out) noexcept;
  // x[n] += y
  void (*add)(float* x, const float* y, std::int64_t n) noexcept;
  // x[n] *= factor
  void (*scale)(float* x, float factor, std::int64_t n) noexcept;
  // f16 bits of x[n], rounded to nearest even; beyond 65504 infinity
  void (*to_f16)(const float* x, std::int64_t n, std::uint16_t* y) noexcept;
  // One row of n elements (a multiple of 32) in 8 bits: q = round(x / d), d = max|x| / 127 of its block, with the sums
  // that quant_rows.h lists. A block with NaN or infinity gets d = NaN, so that it cannot vanish in the rounding; a block
  // of numbers up to 2^-120 gets q = 0.
  void (*quantize)(const float* x, std::int64_t n, const QuantRow& out) noexcept;
};

extern const ElementwiseRow kElementwiseScalar;
extern const ElementwiseRow kElementwiseAvx2;
extern const ElementwiseRow kElementwiseAvx512;
extern const ElementwiseRow kElementwiseNeon;

}  // namespace kvtide
