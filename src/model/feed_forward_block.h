// feed_forward_block.h: blocks that look at every token by itself: x += the feed-forward of the norm of x, or experts that
// a router chooses (experts.h), or both.
//
// Ownership: they refer to the context, the workspace and the steps.
// Thread rules: one caller; the rows are spread over the pool.
#pragma once

#include <cstdint>
#include <span>

#include "model/decoder_context.h"
#include "model/layer_block.h"
#include "model/row_steps.h"
#include "model/workspace.h"

namespace kvtide {

class FeedForwardBlock : public LayerBlock {
 public:
  FeedForwardBlock(const DecoderContext& context, Workspace& workspace, RowSteps& steps)
      : config_(context.config), context_(context), ws_(workspace), steps_(steps) {}
  void run(int layer, std::span<ActivePart> parts, std::int64_t skip, std::int64_t count) final;

 protected:
  // x += what the block makes of x, of rows [skip, count), which are at least one.
  virtual void add(int layer, const LayerWeights& w, std::int64_t skip, std::int64_t count);
  // normed = the feed-forward of normed.
  void feed_forward(int layer, const LayerWeights& w, std::int64_t skip, std::int64_t count);
  // normed = the experts' output for normed; routed: what the router sees instead, or nullptr.
  void experts(const LayerWeights& w, const float* routed, std::int64_t skip, std::int64_t count);

  const ModelConfig& config_;
  const DecoderContext& context_;
  Workspace& ws_;
  RowSteps& steps_;

 private:
  void activate(const LayerWeights& w, std::int64_t hidden, std::int64_t skip, std::int64_t count);
};

class ExpertsBlock final : public FeedForwardBlock {
  using FeedForwardBlock::FeedForwardBlock;
  void add(int layer, const LayerWeights& w, std::int64_t skip, std::int64_t count) override;
};

// Both read x, the router under a norm of its own; x += post_norm(norm(feed-forward) + norm(experts)).
class ExpertsBesideBlock final : public FeedForwardBlock {
  using FeedForwardBlock::FeedForwardBlock;
  void add(int layer, const LayerWeights& w, std::int64_t skip, std::int64_t count) override;
};

}  // namespace kvtide
