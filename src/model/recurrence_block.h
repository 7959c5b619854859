// recurrence_block.h: blocks that carry tensors from token to token instead of keeping rows: norm, projections, short
// convolution, gated delta net or Mamba-2, output.
//
// Ownership: they refer to the context, the workspace and the steps.
// Thread rules: one caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/decoder_context.h"
#include "model/layer_block.h"
#include "model/row_steps.h"
#include "model/workspace.h"

namespace kvtide {

class RecurrenceBlock : public LayerBlock {
 public:
  RecurrenceBlock(const DecoderContext& context, Workspace& workspace, RowSteps& steps)
      : config_(context.config), context_(context), ws_(workspace), steps_(steps) {}
  void run(int layer, std::span<ActivePart> parts, std::int64_t skip, std::int64_t count) final;

 protected:
  // What the output matrix is given, rows of as many numbers as it has columns; `bias` is added behind it.
  struct Output {
    const WeightMatrix& matrix;
    const float* rows;
    const std::vector<float>& bias;
  };
  // From the normed rows.
  virtual Output mix(int layer, const LayerWeights& w, std::span<ActivePart> parts, std::int64_t count) = 0;

  const ModelConfig& config_;
  const DecoderContext& context_;
  Workspace& ws_;
  RowSteps& steps_;
};

class ShortConvBlock final : public RecurrenceBlock {
  using RecurrenceBlock::RecurrenceBlock;
  Output mix(int layer, const LayerWeights& w, std::span<ActivePart> parts, std::int64_t count) override;
};

class DeltaNetBlock final : public RecurrenceBlock {
  using RecurrenceBlock::RecurrenceBlock;
  Output mix(int layer, const LayerWeights& w, std::span<ActivePart> parts, std::int64_t count) override;
};

class StateSpaceBlock final : public RecurrenceBlock {
  using RecurrenceBlock::RecurrenceBlock;
  Output mix(int layer, const LayerWeights& w, std::span<ActivePart> parts, std::int64_t count) override;
};

}  // namespace kvtide
