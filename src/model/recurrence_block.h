// recurrence_block.h: the half of a layer that carries tensors from token to token instead of keeping rows: norm,
// projections, short convolution, gated delta net or Mamba-2, output.
//
// Ownership: refers to the context, the workspace and the steps.
// Thread rules: one caller.
#pragma once

#include <cstdint>
#include <span>

#include "model/active_part.h"
#include "model/decoder_context.h"
#include "model/row_steps.h"
#include "model/workspace.h"

namespace kvtide {

class RecurrenceBlock {
 public:
  RecurrenceBlock(const DecoderContext& context, Workspace& workspace, RowSteps& steps)
      : config_(context.config), context_(context), ws_(workspace), steps_(steps) {}

  // x += the mixed tokens of every part, which together have `count` rows; the first `skip` rows are left out of the
  // sum.
  void run(int layer, std::span<ActivePart> parts, std::int64_t skip, std::int64_t count);

 private:
  void short_convolution(int layer, const LayerWeights& w, std::span<ActivePart> parts, std::int64_t count);
  void delta_net(int layer, const LayerWeights& w, std::span<ActivePart> parts, std::int64_t count);
  void state_space(int layer, const LayerWeights& w, std::span<ActivePart> parts, std::int64_t count);
  // What the output matrix is given, and its bias.
  void put_out(const LayerWeights& w, std::int64_t skip, std::int64_t count);

  const ModelConfig& config_;
  const DecoderContext& context_;
  Workspace& ws_;
  RowSteps& steps_;
};

}  // namespace kvtide
