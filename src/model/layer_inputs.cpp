#include "model/layer_inputs.h"

#include <cmath>

#include "model/for_rows.h"

namespace kvtide {

LayerInputsWeights load_layer_inputs(const ModelConfig& config, WeightSource& source) {
  const std::int64_t all = static_cast<std::int64_t>(config.layers.size()) * config.layer_inputs;
  return {source.matrix(Role::layer_input_embedding, config.vocab, all),
          source.matrix(Role::layer_input_projection, all, config.width),
          source.values(Role::layer_input_norm, {config.layer_inputs})};
}

LayerInputWeights load_layer_input(const ModelConfig& config, WeightSource& source) {
  return {source.matrix(Role::layer_input_gate, config.layer_inputs, config.width),
          source.matrix(Role::layer_input_out, config.width, config.layer_inputs),
          source.values(Role::layer_input_post_norm, {config.width})};
}

void make_layer_inputs(const DecoderContext& context, RowSteps& steps, std::span<const TokenId> tokens,
                       const float* x, float* values) {
  const ModelConfig& config = context.config;
  const LayerInputsWeights& w = *context.weights.layer_inputs();
  const ElementwiseRow& rows = context.kernels.elementwise;
  const std::int64_t each = config.layer_inputs, all = static_cast<std::int64_t>(config.layers.size()) * each;
  const auto count = static_cast<std::int64_t>(tokens.size());
  const MatmulJob job{&w.projection, values, all};
  steps.multiply({count, config.width, x}, {&job, 1});
  const float down = 1.0f / std::sqrt(static_cast<float>(config.width)), half = std::sqrt(0.5f);
  for_rows(context.pool, 0, count, [&](std::int64_t t) {
    float* const row = values + t * all;
    rows.scale(row, down, all);
    for (std::int64_t first = 0; first < all; first += each)
      rows.rms_norm(row + first, w.norm.data(), each, config.norm_epsilon, row + first);
    std::vector<float> own(static_cast<std::size_t>(all));
    decode_weight_row(context.kernels.matmul, w.embedding, tokens[static_cast<std::size_t>(t)], own.data());
    rows.scale(own.data(), std::sqrt(static_cast<float>(each)), all);
    rows.add(row, own.data(), all);
    rows.scale(row, half, all);
  });
}

}  // namespace kvtide
