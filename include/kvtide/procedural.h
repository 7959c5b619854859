// procedural.h: a memory that keeps the newest tokens exact and the past as summaries and outliers.
//
// Old tokens leave the window a block at a time. Of each block, every (layer, KV head) keeps `rows` rows: a
// few summaries, fitted so that the block keeps its share of attention and its output, and the most telling
// rows as they are. A few heads, those that copy from the past, keep every row. docs/procedural_memory.md has
// the maths. Which rows are kept is a pure function of the tokens read: never of chunks, threads or time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

enum class Summary {
  fit,        // biases and values fitted to reference queries
  cluster,    // mean value of a cluster of alike keys, bias ln n
  positional  // neighbours, centre key, mean value, bias ln n: harmful, kept for teaching
};
enum class RowScore { mixed, novelty, value_norm, attention };
enum class FarRule { log, clamp };  // how distances beyond the trained length are seen

// What one (layer, KV head) needs, measured once per model.
struct HeadNeed {
  float induction = 0.0f;    // share of attention that goes back to an earlier copy of the text
  float share = 1.0f;        // how often the head's rows are among the most telling ones
  float output_norm = 1.0f;  // |W_O| of the head over the size of the residual stream
  friend bool operator==(const HeadNeed&, const HeadNeed&) = default;
};
struct HeadTable {
  int kv_heads = 0;
  std::vector<HeadNeed> needs;  // [layers][kv_heads]; empty: all alike
  friend bool operator==(const HeadTable&, const HeadTable&) = default;
};

// Zeros (and levels -1) are filled in: with what a budget allows, or else with the balanced preset.
struct ProceduralOptions {
  std::int64_t budget = 0;     // bytes that are never exceeded; 0: none
  Pos budget_for = 0;          // tokens that will be read; 0: no end
  std::int64_t sinks = 4;      // first positions, kept exact
  std::int64_t window = 0;     // newest positions, exact
  std::int64_t block = 0;      // positions summarised at once
  std::int64_t rows = 0;       // kept of a block, on average over all heads
  std::int64_t summaries = 4;  // of these, per head
  int levels = -1;             // how often old blocks are consolidated; 0: never
  std::int64_t full_rows = 0;  // newest rows that full heads keep; 0 without a budget: all
  Summary summary = Summary::fit;
  RowScore score = RowScore::mixed;
  HeadTable heads;
  float full_from = 0.15f;      // heads with at least this induction are full heads: they keep every row
  bool half_precision = false;  // old rows as f16 instead of q8_0
  FarRule far = FarRule::log;
  friend bool operator==(const ProceduralOptions&, const ProceduralOptions&) = default;
};

struct ProceduralPreset {
  const char* name;
  std::int64_t window, block, rows;
};
inline constexpr ProceduralPreset kProceduralPresets[] = {
    {"minimal", 512, 256, 32}, {"balanced", 512, 256, 64}, {"faithful", 1024, 512, 96}};

// The most that a procedural memory holds at any moment, by what for, in bytes.
struct ProceduralBytes {
  std::int64_t window = 0;      // exact rows, sinks included
  std::int64_t rings = 0;       // layers with a window of their own
  std::int64_t references = 0;  // queries that sealing asks
  std::int64_t compact = 0;     // summaries and outliers
  std::int64_t full = 0;        // full heads
  std::int64_t total() const { return window + rings + references + compact + full; }
};

// What a procedural memory holds and has done.
struct ProceduralCounts {
  int full_heads = 0;  // over all layers
  std::int64_t blocks_sealed = 0, consolidations = 0;
  std::int64_t sink_rows = 0, window_rows = 0, full_rows = 0, outlier_rows = 0;  // over all layers and heads
  std::vector<std::int64_t> summary_rows;                                        // per level, from 1
  std::int64_t thinned = 0;        // times that full heads gave up half of an old block, or all of it
  std::int64_t fits_rejected = 0;  // heads whose fit was worse than ln n on held-out references
  double shed_mass = 0.0;          // tokens times heads that no row stands for any more
  double log_mass_error = 0.0;     // mean over sealed (head, block) of |error of the block's log mass|, nats
  double seal_seconds = 0.0;
  std::int64_t bytes_peak = 0;  // the most that was held at any moment
};

}  // namespace kvtide
