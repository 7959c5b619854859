// attention_block.h: the half of a layer that keeps rows: norm, queries, keys and values, attention over what the
// state holds, output.
//
// Ownership: refers to the context, the workspace and the steps.
// Thread rules: one caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attend_input.h"
#include "model/active_part.h"
#include "model/decoder_context.h"
#include "model/layer_block.h"
#include "model/row_steps.h"
#include "model/workspace.h"

namespace kvtide {

class AttentionBlock final : public LayerBlock {
 public:
  AttentionBlock(const DecoderContext& context, Workspace& workspace, RowSteps& steps);

  // x += attention of every part, which together have `count` rows; the first `skip` rows are left out of the sum, but
  // their keys and values are stored.
  void run(int layer, std::span<ActivePart> parts, std::int64_t skip, std::int64_t count) override;

 private:
  // The number that a layer with attention, or the one whose rows it reads, has in a state.
  int kept(int layer) const { return kept_[static_cast<std::size_t>(layer)]; }
  bool owns_rows(int layer) const { return config_.layers[static_cast<std::size_t>(layer)].rows_of < 0; }
  std::size_t rope_of(int layer) const {
    return static_cast<std::size_t>(config_.layers[static_cast<std::size_t>(layer)].rope);
  }
  float growth_at(Pos position) const;
  AttendShape shape_of(const KvState::Step& step, int layer) const;

  void project_heads(int layer, const LayerWeights& w, std::span<ActivePart> parts, std::int64_t first,
                     std::int64_t count);
  void attend_part(ActivePart& part, int layer, const LayerWeights& w, std::int64_t skip);
  void turn_queries(ActivePart& part, int layer, const LayerWeights& w, std::int64_t first,
                    QueryViews& queries);
  void write_rows(ActivePart& part, int layer, const LayerWeights& w);
  void share_with_sinks(const LayerWeights& w, std::span<const float> log_mass, float* mixed,
                        std::int64_t count);
  // mixed *= sigmoid of the gates that lie beside the queries.
  void gate(std::int64_t skip, std::int64_t count);

  const ModelConfig& config_;
  const DecoderContext& context_;
  Workspace& ws_;
  RowSteps& steps_;
  std::vector<int> kept_;  // by layer; -1: it keeps no rows
};

}  // namespace kvtide
