// layer_end_block.h: what stands behind both halves of a layer: what its token gives to it, and the layer's scale
// (layer_inputs.h).
//
// Ownership: refers to the context, the workspace and the steps.
// Thread rules: one caller; the rows are spread over the pool.
#pragma once

#include <cstdint>
#include <span>

#include "model/decoder_context.h"
#include "model/layer_block.h"
#include "model/row_steps.h"
#include "model/workspace.h"

namespace kvtide {

class LayerEndBlock final : public LayerBlock {
 public:
  LayerEndBlock(const DecoderContext& context, Workspace& workspace, RowSteps& steps)
      : config_(context.config), context_(context), ws_(workspace), steps_(steps) {}
  void run(int layer, std::span<ActivePart> parts, std::int64_t skip, std::int64_t count) override;

 private:
  void add_inputs(int layer, const LayerInputWeights& w, std::int64_t skip, std::int64_t count);

  const ModelConfig& config_;
  const DecoderContext& context_;
  Workspace& ws_;
  RowSteps& steps_;
};

}  // namespace kvtide
