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
};
struct HeadTable {
  int kv_heads = 0;
  std::vector<HeadNeed> needs;  // [layers][kv_heads]; empty: all alike
};

struct ProceduralOptions {
  std::int64_t sinks = 4;      // first positions, kept exact
  std::int64_t window = 512;   // newest positions, exact
  std::int64_t block = 256;    // positions summarised at once
  std::int64_t rows = 64;      // kept of a block, on average over all heads
  std::int64_t summaries = 4;  // of these, per head
  Summary summary = Summary::fit;
  RowScore score = RowScore::mixed;
  HeadTable heads;
  float full_from = 0.15f;      // heads with at least this induction keep every row
  std::int64_t full_rows = 0;   // newest rows that such a head keeps; 0: all
  bool half_precision = false;  // old rows as f16 instead of q8_0
  FarRule far = FarRule::log;
  int levels = 3;  // how often old blocks are consolidated; 0: never
};

// What a procedural memory holds and has done.
struct ProceduralCounts {
  std::int64_t blocks_sealed = 0, consolidations = 0;
  std::int64_t sink_rows = 0, window_rows = 0, full_rows = 0, outlier_rows = 0;  // over all layers and heads
  std::vector<std::int64_t> summary_rows;                                        // per level, from 1
  std::int64_t fits_rejected = 0;  // heads whose fit was worse than ln n on held-out references
  double shed_mass = 0.0;          // tokens times heads that no row stands for any more
  double log_mass_error = 0.0;     // mean over sealed (head, block) of |error of the block's log mass|, nats
  double seal_seconds = 0.0;
};

}  // namespace kvtide
