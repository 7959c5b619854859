#include "model/memory_shape.h"

#include "model/cca.h"
#include "model/rope_table.h"

namespace kvtide {

KvSpec memory_shape(const ModelConfig& config) {
  KvSpec shape;
  for (const auto& layer : config.layers)
    shape.layers.push_back(
        {config.kv_heads, config.head_dim, layer.window,
         RopeTable(config.ropes[static_cast<std::size_t>(layer.rope)], config.rope_dims).frequencies()});
  shape.rotary = !config.learned_positions;
  if (config.learned_positions) shape.positions = config.context_length;
  shape.recurrent = carried_tensors(config);
  return shape;
}

AttentionShape attention_shape(const ModelConfig& config) {
  return {config.heads, config.attention_scale, config.context_length};
}

}  // namespace kvtide
