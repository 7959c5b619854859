#include "model/memory_shape.h"

#include "model/cca.h"
#include "model/delta_net.h"
#include "model/rope_table.h"
#include "model/short_conv.h"
#include "model/state_space.h"

namespace kvtide {

KvSpec memory_shape(const ModelConfig& config) {
  KvSpec shape;
  for (const int i : attention_layers(config)) {
    const LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
    const HeadsConfig heads = heads_of(config, i);
    const RopeTable rope(config.ropes[static_cast<std::size_t>(layer.rope)],
                         rope_dims_of(config, layer.rope));
    shape.layers.push_back(
        {heads.kv_heads, heads.head_dim, layer.window, rope.frequencies(), config.latent.has_value()});
  }
  shape.rotary = !config.learned_positions;
  if (config.learned_positions) shape.positions = config.context_length;
  shape.recurrent = config.convolved     ? cca_tensors(config)
                    : config.delta       ? delta_net_tensors(config)
                    : config.state_space ? state_space_tensors(config)
                                         : short_conv_tensors(config);
  return shape;
}

AttentionShape attention_shape(const ModelConfig& config) {
  return {config.heads, config.attention_scale, config.context_length};
}

}  // namespace kvtide
