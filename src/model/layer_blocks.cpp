#include "model/layer_blocks.h"

namespace kvtide {

LayerBlocks::LayerBlocks(const DecoderContext& context, Workspace& workspace, RowSteps& steps)
    : attention_(context, workspace, steps),
      short_conv_(context, workspace, steps),
      delta_net_(context, workspace, steps),
      state_space_(context, workspace, steps),
      feed_forward_(context, workspace, steps),
      experts_(context, workspace, steps),
      experts_beside_(context, workspace, steps),
      end_(context, workspace, steps) {
  const ModelConfig& config = context.config;
  blocks_.reserve(3 * config.layers.size());
  starts_.reserve(2 * config.layers.size() + 1);
  for (const LayerConfig& layer : config.layers) {
    starts_.push_back(blocks_.size());
    if (LayerBlock* const block = mixer(layer.mixer)) blocks_.push_back(block);
    starts_.push_back(blocks_.size());
    if (layer.feed_forward) blocks_.push_back(feed_forward(config, layer));
    blocks_.push_back(&end_);
  }
  starts_.push_back(blocks_.size());
}

LayerBlock* LayerBlocks::mixer(Mixer kind) {
  switch (kind) {
    case Mixer::attention:
      return &attention_;
    case Mixer::short_convolution:
      return &short_conv_;
    case Mixer::delta_net:
      return &delta_net_;
    case Mixer::state_space:
      return &state_space_;
    case Mixer::none:
      break;
  }
  return nullptr;
}

LayerBlock* LayerBlocks::feed_forward(const ModelConfig& config, const LayerConfig& layer) {
  if (!config.experts || !layer.routed) return &feed_forward_;
  return config.experts->beside ? static_cast<LayerBlock*>(&experts_beside_) : &experts_;
}

}  // namespace kvtide
