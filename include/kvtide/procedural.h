// procedural.h: a memory that keeps the newest tokens exact and the past as summaries and outliers.
//
// Old tokens leave the window a block at a time. Of each block, every (layer, KV head) keeps `rows` rows: a
// few summaries, fitted so that the block keeps its share of attention and its output, and the most telling
// rows as they are. A few heads, those that copy from the past, keep every row. docs/procedural_memory.md has
// the maths. Which rows are kept is a pure function of the tokens read: never of chunks, threads or time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

enum class Summary {
  fit,        // biases and values fitted to reference queries
  cluster,    // mean value of a cluster of alike keys, bias ln n
  positional  // neighbours, centre key, mean value, bias ln n: harmful, kept for teaching
};
enum class RowScore { mixed, novelty, value_norm, attention, repetition };
enum class FarRule { log, clamp };  // how distances beyond the trained length are seen
enum class Adapt {                  // which heads get more of the rows of a block, at equal sums
  off,                              // as the head table says
  drift,                            // those whose summaries missed the block's log mass most
  entropy                           // those whose attention is dispersed over many rows
};

enum class WindowType {  // how the newest rows are stored once blocks are sealed
  automatic,             // as written, but in q8_0 where a budget does not hold every row of the text
  as_written,            // in the types of the session
  q8_0
};
enum class RowType {  // how rows of the past are stored
  automatic,  // in q8_0, or in q4_0 where a budget asks for it; heads of no multiple of 32 elements: in f16
  f16,
  q8_0,
  q4_0  // of Hadamard transforms: 4.5 bits an element
};

// How choices are written, in the order of their enumerations.
inline constexpr std::string_view kSummaryNames[] = {"fit", "cluster", "positional"};
inline constexpr std::string_view kRowScoreNames[] = {"mixed", "novelty", "vnorm", "attention", "repetition"};
inline constexpr std::string_view kFarRuleNames[] = {"log", "clamp"};
inline constexpr std::string_view kAdaptNames[] = {"off", "drift", "entropy"};
inline constexpr std::string_view kWindowTypeNames[] = {"automatic", "as_written", "q8_0"};
inline constexpr std::string_view kRowTypeNames[] = {"automatic", "f16", "q8_0", "q4_0"};
constexpr std::span<const std::string_view> names_of(Summary) { return kSummaryNames; }
constexpr std::span<const std::string_view> names_of(RowScore) { return kRowScoreNames; }
constexpr std::span<const std::string_view> names_of(FarRule) { return kFarRuleNames; }
constexpr std::span<const std::string_view> names_of(Adapt) { return kAdaptNames; }
constexpr std::span<const std::string_view> names_of(WindowType) { return kWindowTypeNames; }
constexpr std::span<const std::string_view> names_of(RowType) { return kRowTypeNames; }
template <class Choice>
constexpr std::string_view name_of(Choice choice) {
  return names_of(choice)[static_cast<std::size_t>(choice)];
}

// What one (layer, KV head) needs, measured once per model.
struct HeadNeed {
  float induction = 0.0f;    // share of attention that goes back to an earlier copy of the text
  float share = 1.0f;        // how often the head's rows are among the most telling ones
  float output_norm = 1.0f;  // |W_O| of the head over the size of the residual stream
  // What words that come back cost more without the head's rows of them, nats a token; 1 where nobody measured it.
  float worth = 1.0f;
  // What full_from is compared with: a head whose rows are worth little is no copying head, whatever it attends to.
  float copies() const { return worth < kWorthKeeping ? std::min(induction, kHardlyCopies) : induction; }
  static constexpr float kWorthKeeping = 0.2f;     // nats a token
  static constexpr float kHardlyCopies = 0.1499f;  // just below ProceduralOptions::full_from
  friend bool operator==(const HeadNeed&, const HeadNeed&) = default;
};
struct HeadTable {
  int kv_heads = 0;
  std::vector<HeadNeed> needs;  // [layers][kv_heads]; empty: all alike
  friend bool operator==(const HeadTable&, const HeadTable&) = default;
};

// Zeros (and -1 of levels and summaries) are filled in: with what a budget allows, or else with the balanced preset.
struct ProceduralOptions {
  std::int64_t budget = 0;  // bytes that are never exceeded; 0: none
  // Tokens that are expected; 0: no end. Longer texts are read, too, but where the memory grows with the
  // text (levels 0, full_rows 0): there the token that the budget has no room for is refused.
  Pos budget_for = 0;
  // Where a budget has no end: every row stays as it was written, and then in eight bits, for as long as the
  // budget holds the text; only then are blocks summarised. It is for a window that the budget picks.
  bool exact_first = true;
  std::int64_t sinks = 4;   // first positions, kept exact
  std::int64_t window = 0;  // newest positions, every row
  WindowType window_type = WindowType::automatic;
  std::int64_t block = 0;                 // positions summarised at once
  std::int64_t rows = 0;                  // kept of a block, on average over all heads
  RowType row_type = RowType::automatic;  // how these are stored, and references; q4_0 inside a budget
  // Of these, per head; -1: so many, or a third of the rows that a budget picks in four bits.
  static constexpr std::int64_t kSummaries = 4;
  std::int64_t summaries = -1;
  int levels = -1;  // old blocks are consolidated so that 6 levels + 1 stay; 0: never
  // Full heads, those that copy from the past, keep rows that nothing stands in for: at most so many each, beyond
  // them old text thins out; 0: every row, or with a budget as many as it allows.
  std::int64_t full_rows = 0;
  // How they store them; q4_0 where a budget holds only a part otherwise.
  RowType full_type = RowType::automatic;
  Summary summary = Summary::fit;
  RowScore score = RowScore::mixed;
  HeadTable heads;
  float full_from = 0.15f;  // heads whose copies() is at least that are full heads
  FarRule far = FarRule::log;
  // Layers [first_layer, last_layer] are compressed; of the others old rows are converted and all kept.
  int first_layer = 0;
  int last_layer = -1;          // -1: the last there is
  std::vector<PosRange> pins;   // positions that stay exact in every head for good: ascending, apart
  std::int64_t level_rows = 0;  // most rows of a level, per layer and on average over its plain heads; 0: any
  float shed_below = 0.0f;      // outliers whose score falls below go at the next consolidation
  float decay = 0.0f;           // share that scores lose at every consolidation, but for
  float retention = 0.0f;       // what outliers hold on to: score *= 1 - decay * (1 - retention)
  Adapt adapt = Adapt::off;
  // File for what full heads keep beyond full_rows; empty: they thin out. It stays with the process that made
  // it: in a child of fork(2), reading on is an Error(io).
  std::string spill;
  friend bool operator==(const ProceduralOptions&, const ProceduralOptions&) = default;
};

// The newest minor version of the snapshot format: each has more keys, which older readers may leave out. A field
// that is new in the list below raises it.
inline constexpr int kSnapshotMinor = 7;

// What is known of a field of ProceduralOptions beside its type.
struct ProceduralField {
  std::string_view name;  // in Python, snapshots and reports
  double least = 0.0;     // of a number that a memory is made with, and the largest; both 0: not a number, or
  double most = 0.0;      // checked against other numbers
  int since = -1;         // minor version of the snapshot format that tells it first; -1: none does
};

// The one list of the fields: calls visitor(ProceduralField, value) for each. Flags, snapshots, reports, Python
// and checks walk it, so that a new field is theirs as soon as it stands here. Options: ProceduralOptions, const
// or not, or what derives from it.
template <class Options, class Visitor>
constexpr void visit(Options& o, Visitor&& visitor) {
  constexpr double kMany = 0x1p40;  // tokens, rows: sums of a few stay far from overflow
  visitor(ProceduralField{"budget", 0, 0x1p60, 1}, o.budget);
  visitor(ProceduralField{"budget_for", 0, kMany, 1}, o.budget_for);
  visitor(ProceduralField{"exact_first"}, o.exact_first);  // files tell the stages that it led to
  visitor(ProceduralField{"sinks", 0, kMany, 0}, o.sinks);
  visitor(ProceduralField{"window", 0, kMany, 0}, o.window);
  visitor(ProceduralField{"window_type", 0, 0, 5}, o.window_type);
  visitor(ProceduralField{"block", 16, 65536, 0}, o.block);
  visitor(ProceduralField{"rows", 0, 65536, 1}, o.rows);
  visitor(ProceduralField{"row_type"}, o.row_type);  // files tell the element type that it led to
  visitor(ProceduralField{"summaries", 0, 65536, 0}, o.summaries);
  visitor(ProceduralField{"levels", 0, 8, 0}, o.levels);
  visitor(ProceduralField{"full_rows", 0, kMany, 0}, o.full_rows);
  visitor(ProceduralField{"full_type"}, o.full_type);  // likewise
  visitor(ProceduralField{"summary", 0, 0, 0}, o.summary);
  visitor(ProceduralField{"score", 0, 0, 0}, o.score);
  visitor(ProceduralField{"heads"}, o.heads);  // files tell the plans that it led to
  visitor(ProceduralField{"full_from", -1e30, 1e30, 1}, o.full_from);
  visitor(ProceduralField{"far", 0, 0, 0}, o.far);
  visitor(ProceduralField{"first_layer", 0, 65535, 1}, o.first_layer);
  visitor(ProceduralField{"last_layer", -1, 65535, 1}, o.last_layer);
  visitor(ProceduralField{"pins", 0, 0, 0}, o.pins);
  visitor(ProceduralField{"level_rows", 0, kMany, 0}, o.level_rows);
  visitor(ProceduralField{"shed_below", -3e38, 3e38, 0}, o.shed_below);
  visitor(ProceduralField{"decay", 0, 1, 0}, o.decay);
  visitor(ProceduralField{"retention", 0, 1, 0}, o.retention);
  visitor(ProceduralField{"adapt", 0, 0, 0}, o.adapt);
  visitor(ProceduralField{"spill"}, o.spill);  // such a memory has no snapshots
}

struct ProceduralPreset {
  const char* name;
  std::int64_t window, block, rows;
};
inline constexpr ProceduralPreset kProceduralPresets[] = {
    {"minimal", 512, 256, 32}, {"balanced", 512, 256, 64}, {"faithful", 1024, 512, 96}};

// The most that a procedural memory holds at any moment, by what for, in bytes.
struct ProceduralBytes {
  std::int64_t window = 0;       // exact rows, sinks included
  std::int64_t rings = 0;        // layers with a window of their own
  std::int64_t references = 0;   // queries that sealing asks
  std::int64_t compact = 0;      // summaries and outliers
  std::int64_t full = 0;         // full heads
  std::int64_t carried = 0;      // tensors beside rows, of all positions that are kept
  bool grows = false;            // with every token: the bytes are those for the tokens that are expected
  std::int64_t exact_first = 0;  // of all, while every row is kept and nothing is summarised yet
  std::int64_t total() const {
    const std::int64_t later = window + rings + references + compact + full + carried;
    return later > exact_first ? later : exact_first;
  }
};

// What a procedural memory holds and has done.
struct ProceduralCounts {
  int full_heads = 0;  // over all layers
  std::int64_t blocks_sealed = 0, consolidations = 0;
  std::int64_t sink_rows = 0, window_rows = 0, full_rows = 0, outlier_rows = 0;  // over all layers and heads
  std::vector<std::int64_t> summary_rows;                                        // per level, from 1
  std::int64_t pinned_rows = 0;    // of the outliers, those that never go
  std::int64_t spilled_rows = 0;   // of the full rows, those in the spill file
  std::int64_t spilled_bytes = 0;  // of that file; no part of the bytes held
  std::int64_t thinned = 0;        // times that full heads gave up passages of old text
  std::int64_t shed_soft = 0;      // outliers whose score fell below shed_below
  std::int64_t shed_hard = 0;      // outliers that a full level gave up
  std::int64_t level_hits = 0;     // times that a level of a layer was over level_rows
  std::int64_t fits_rejected = 0;  // heads whose fit was worse than ln n on held-out references
  double shed_mass = 0.0;          // tokens times heads that no row stands for any more
  double log_mass_error = 0.0;     // mean over sealed (head, block) of |error of the block's log mass|, nats
  double seal_seconds = 0.0;
  std::int64_t bytes_peak = 0;  // the most that was held at any moment
  // Position since which the memory holds what it holds: no more than 2 MiB or 1/32 above.
  Pos steady_from = 0;
};

// One step of a seal, as a log shows it.
struct ProceduralEvent {
  enum class Kind {
    seal,           // a block left the window
    consolidation,  // several blocks became one
    row_type        // all rows were rewritten in another element type
  };
  Kind kind = Kind::seal;
  int level = 1;     // of the block that came out
  Pos position = 0;  // tokens read
  PosRange block;    // positions that it stands for
  ElementType key_type = ElementType::f16,
              value_type = ElementType::f16;  // of the exact rows from now on (row_type)
  double seconds = 0.0;
  ProceduralCounts after;  // of the run so far
  std::int64_t bytes = 0;  // held after the whole seal
};

// Shadow mode: every so often attention is computed over everything that was read, too, and compared. What it
// needs is kept beside the memory, outside its budget, and changes no result.
struct ShadowOptions {
  std::int64_t every = 256;  // tokens from one sample to the next
  int first_layer = 0;       // of those that are compressed
  int last_layer = -1;       // -1: the last there is
};

// Of samples, tokens x heads each.
struct Spread {
  double mean = 0.0, p50 = 0.0, p99 = 0.0;
};

// How far attention over the memory is from attention over everything.
struct HeadDrift {  // means of one layer and query head
  int layer = 0, head = 0;
  double output = 0.0, log_mass = 0.0, overlap = 0.0;
};
struct Drift {
  std::int64_t tokens = 0;  // sampled
  Spread output;            // |o - o'| / |o'|, o' the output over everything
  Spread log_mass;          // |ln Z - ln Z'|, nats
  Spread overlap;  // of the 16 rows with most attention, shared over all: p99 is that of the worst 1%
  std::vector<HeadDrift> heads;
  int worst_layer = -1;  // by the mean error of its output
  double worst_output = 0.0;
  std::int64_t bytes = 0;  // kept for the purpose
  double seconds = 0.0;    // spent on it
};

}  // namespace kvtide
