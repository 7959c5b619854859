// layer_inputs_weights.h: the weights of per-layer embeddings (layer_inputs.h).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/matmul.h"
#include "model/config/config.h"
#include "model/weight_source.h"

namespace kvtide {

struct LayerInputsWeights {
  WeightMatrix embedding;   // [vocabulary][layers * layer_inputs]
  WeightMatrix projection;  // [layers * layer_inputs][width]
  std::vector<float> norm;  // [layer_inputs]
};

// Of one layer.
struct LayerInputWeights {
  WeightMatrix gate, out;        // [layer_inputs][width], [width][layer_inputs]
  std::vector<float> post_norm;  // [width]
};

LayerInputsWeights load_layer_inputs(const ModelConfig& config, WeightSource& source);
LayerInputWeights load_layer_input(const ModelConfig& config, WeightSource& source);

}  // namespace kvtide
