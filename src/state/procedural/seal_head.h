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
#include "state/procedural/reference_rows.h"
#include "state/procedural/references.h"
#include "state/procedural/spec.h"

namespace kvtide {

struct SealRequest {
  const ProceduralSpec& spec;
  const References& references;
  DType key_type, value_type;            // of the rows in the window
  Pos first, last;                       // positions of the block
  std::vector<const AskedAhead*> asked;  // per layer
};
// The references that judge a block which leaves the window of a text of `position` tokens.
std::vector<Pos> judges_of_seal(const References& references, Pos first, Pos last, Pos position);

struct SealedHead {
  std::vector<std::byte> keys, values;  // in the type of old rows
  std::vector<RowNote> notes;
  float log_mass_error = 0.0f;
  bool rejected = false;
};

SealedHead seal_head(const SealRequest& request, const Kernels& kernels, Summariser& summariser,
                     const LayerRows& rows, int layer, int head, int head_dim);

struct MergeRequest {
  const ProceduralSpec& spec;
  const References& references;
  std::vector<const AskedAhead*> asked;  // per layer
};
struct MergeBlock {
  std::int64_t first_row, rows;
  const float*
      turn;  // cosines and sines [2][pairs] of how much nearer its rows are seen; nullptr: not at all
};
// The references that judge old blocks: those of the window from `first` on, and those that were retained.
std::vector<Pos> judges_of_merge(const References& references, Pos first, Pos position);

// The rows (ascending) that stay when `blocks` become one: as many as a block has.
std::vector<std::int64_t> merge_head(const MergeRequest& request, const Kernels& kernels,
                                     Summariser& summariser, const HeadRows& rows,
                                     const std::vector<MergeBlock>& blocks, int layer, int head,
                                     int head_dim);

}  // namespace kvtide
