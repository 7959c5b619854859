// seal_head.h: what one (layer, KV head) keeps of a block that leaves the window, and of blocks that merge.
//
// Pure functions: they read the state and return rows, and change nothing. Thread rules: different heads from
// different threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "state/procedural/head_rows.h"
#include "state/procedural/reference_rows.h"
#include "state/procedural/references.h"
#include "state/procedural/repetition.h"
#include "state/procedural/summarise.h"
#include "state/rows/layer_rows.h"
#include "state/spec/procedural_spec.h"

namespace kvtide {

struct SealRequest {
  const ProceduralSpec& spec;
  const References& references;
  DType key_type, value_type;            // of the rows in the window
  bool spread = false;                   // which lie as their Hadamard transforms
  Pos first, last;                       // positions of the block
  std::vector<const AskedAhead*> asked;  // per layer
  const Repetition* repetition;          // of the block; nullptr: none
};
// The references that judge a block which leaves the window of a text of `position` tokens.
std::vector<Pos> judges_of_seal(const References& references, Pos first, Pos last, Pos position);

struct SealedHead {
  std::vector<float> mean_key;  // of the memory's first block, where keys are kept less their mean: memory.h
  std::vector<std::byte> keys, values;  // in the type of the head's rows
  std::vector<RowNote> notes;
  float log_mass_error = 0.0f;
  float spread = 0.0f;    // as in Summarised
  std::int64_t lost = 0;  // tokens that no row stands for
  bool rejected = false;
};

// keep: rows of the block that stay, pinned ones apart; a full head keeps all. mean_key: of the head, empty in its
// first block.
SealedHead seal_head(const SealRequest& request, const Kernels& kernels, Summariser& summariser,
                     const LayerRows& rows, int layer, int head, int head_dim, std::int64_t keep,
                     std::span<const float> mean_key);

// body(summariser, item) for every item, with one scratch memory per thread, whichever items it takes.
template <class Body>
void each_with_summariser(ThreadPool& pool, const Kernels& kernels, std::size_t items, Body body) {
  std::atomic<std::size_t> next{0};
  pool.run(pool.threads(), [&](std::int64_t) {
    Summariser summariser(kernels.dense);
    for (std::size_t i = next++; i < items; i = next++) body(summariser, i);
  });
}

struct MergeRequest {
  const ProceduralSpec& spec;
  const References& references;
  std::vector<const AskedAhead*> asked;  // per layer
};
struct MergeBlock {
  std::int64_t first_row, rows;
  // Cosines and sines [2][pairs] of how much nearer its rows are seen; nullptr: not at all.
  const float* turn;
};
// The references that judge old blocks: those of the window from `first` on, and those that were retained.
std::vector<Pos> judges_of_merge(const References& references, Pos first, Pos position);

// What a head keeps of blocks that become one, by the numbers of its rows.
struct MergedHead {
  std::vector<std::int64_t> kept;  // ascending
  // Of these, rows that stand for what goes as well: their new notes, and values in the type of the head's rows.
  std::vector<std::int64_t> summaries;
  std::vector<RowNote> notes;
  std::vector<std::byte> values;
};

// keep: rows that stay, pinned ones apart: those with most attention. mean_key: of the head.
MergedHead merge_head(const MergeRequest& request, const Kernels& kernels, Summariser& summariser,
                      const HeadRows& rows, const std::vector<MergeBlock>& blocks, int layer, int head,
                      int head_dim, std::int64_t keep, std::span<const float> mean_key);

}  // namespace kvtide
