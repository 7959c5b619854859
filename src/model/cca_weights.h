// cca_weights.h: what compressed convolutional attention (cca.h) has beside queries, keys and values.
//
// Ownership: value_delayed refers to the panels of Weights.
// Thread rules: plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config/config.h"
#include "model/weight_source.h"
#include "tensor/panel.h"

namespace kvtide {

// Widths that follow from the heads; channels are the query heads and then the key heads, side by side.
struct CcaSizes {
  std::int64_t head_dim, q_width, kv_width, channels;
  std::int64_t heads;   // of queries and of keys
  std::int64_t panels;  // of 16 outputs, per head
  explicit CcaSizes(const ModelConfig& config);
  std::int64_t panel_floats() const { return 2 * head_dim * kPanelRows; }
};

struct CcaWeights {
  WeightMatrix value_delayed;                       // [kv_heads * head_dim / 2][width]
  std::vector<float> older, newer, depthwise_bias;  // [channels]: a[.][0], a[.][1], b
  // [heads + kv_heads][panels of 16 outputs][2 taps][head_dim inputs][16]
  std::vector<float> grouped;
  std::vector<float> grouped_bias;          // [channels]
  std::vector<float> query_gain, key_gain;  // [head_dim], [kv_heads * head_dim]
};

// The grouped convolution as checkpoints hold it, [channels][head_dim][2 taps].
std::vector<float> grouped_taps(const CcaWeights& weights, const CcaSizes& sizes);

CcaWeights load_cca(const ModelConfig& config, WeightSource& source);

}  // namespace kvtide
