// activate.h: what stands between the two products of a feed-forward, for one row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/elementwise.h"
#include "model/config/config.h"

namespace kvtide {

// gate *= up behind the activation of gate; without a gate (nullptr) up becomes its own activation.
inline void activate(const ModelConfig& config, const ElementwiseRow& rows, float* gate, float* up,
                     std::int64_t n) {
  if (gate != nullptr)
    return config.activation == Activation::gelu ? rows.gelu_mul(gate, up, n) : rows.silu_mul(gate, up, n);
  if (config.activation == Activation::gelu) return rows.gelu(up, n);
  for (std::int64_t i = 0; i < n; ++i) {
    const float kept = std::max(up[i], 0.0f);
    up[i] = kept * kept;
  }
}

}  // namespace kvtide
