// seal_head.h: what one (layer, KV head) keeps of a block that leaves the window, and of blocks that merge.
//
// Pure functions: they read the state and return rows, and change nothing. Thread rules: different heads from
// different threads.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "state/layer_rows.h"
#include "state/procedural/head_rows.h"
#include "state/procedural/references.h"
#include "state/procedural/spec.h"

namespace kvtide {

struct SealRequest {
  const ProceduralSpec& spec;
  const References& references;
  DType key_type, value_type;  // of the rows in the window
  Pos first, last;             // positions of the block
  Pos position;                // tokens read
  std::int64_t rows = 0;       // of the block that stay, pinned ones apart; a full head keeps all
};

struct SealedHead {
  std::vector<std::byte> keys, values;  // in the type of old rows
  std::vector<RowNote> notes;
  float log_mass_error = 0.0f;
  float spread = 0.0f;    // as in Summarised
  std::int64_t lost = 0;  // tokens that no row stands for
  bool rejected = false;
};

SealedHead seal_head(const SealRequest& request, const Kernels& kernels, LayerRows& rows, int layer, int head,
                     int head_dim);

struct MergeRequest {
  const ProceduralSpec& spec;
  const References& references;
  Pos window_first;  // oldest position of the window
  Pos position;
};
struct MergeBlock {
  std::int64_t first_row, rows;
  Pos shift;  // how much nearer its rows are seen
};

// The rows (ascending) that stay when `blocks` become one: `keep` of them, and the pinned ones.
std::vector<std::int64_t> merge_head(const MergeRequest& request, const Kernels& kernels,
                                     const HeadRows& rows, const std::vector<MergeBlock>& blocks, int layer,
                                     int head, int head_dim, std::int64_t keep);

}  // namespace kvtide
