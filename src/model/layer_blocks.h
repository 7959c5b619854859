// layer_blocks.h: which blocks the layers of a model are made of, in the order in which they run.
//
// A LayerConfig says it: most layers mix tokens and then have a feed-forward; some have only one of the two.
// Ownership: owns the blocks, which refer to the context, the workspace and the steps.
// Thread rules: one caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/attention_block.h"
#include "model/feed_forward_block.h"
#include "model/layer_end_block.h"
#include "model/recurrence_block.h"

namespace kvtide {

class LayerBlocks {
 public:
  LayerBlocks(const DecoderContext& context, Workspace& workspace, RowSteps& steps);

  // Those that mix tokens, then those that look at each by itself.
  std::span<LayerBlock* const> mixing(int layer) const { return between(2 * layer); }
  std::span<LayerBlock* const> behind(int layer) const { return between(2 * layer + 1); }

 private:
  std::span<LayerBlock* const> between(int list) const {
    const auto at = static_cast<std::size_t>(list);
    return std::span(blocks_).subspan(starts_[at], starts_[at + 1] - starts_[at]);
  }
  LayerBlock* mixer(Mixer kind);
  LayerBlock* feed_forward(const ModelConfig& config, const LayerConfig& layer);

  AttentionBlock attention_;
  ShortConvBlock short_conv_;
  DeltaNetBlock delta_net_;
  StateSpaceBlock state_space_;
  FeedForwardBlock feed_forward_;
  ExpertsBlock experts_;
  ExpertsBesideBlock experts_beside_;
  LayerEndBlock end_;
  std::vector<LayerBlock*> blocks_;  // of all layers, one list after another
  std::vector<std::size_t> starts_;  // of two lists a layer, and the end of the last
};

}  // namespace kvtide
