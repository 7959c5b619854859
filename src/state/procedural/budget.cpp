#include "state/procedural/budget.h"

#include <algorithm>
#include <limits>

#include "base/pages.h"
#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "state/procedural/memory.h"
#include "state/procedural/passages.h"
#include "state/procedural/stages.h"
#include "state/rows/row_format.h"
#include "state/spec/bytes.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
// Of a head whose share of the rows changes: two more pages begun, and two steps of notes.
constexpr std::int64_t kAdaptSlack = 2 * kPage + 2 * 256 * 16;
constexpr Pos kWithoutEnd = Pos{1} << 30;
constexpr std::int64_t kMostHeads = std::int64_t{1} << 18;
constexpr Pos kLongestText = Pos{1} << 31;
// Tokens of a step beside windows; fewer where that frees so large a part of the budget, though they are read slower.
constexpr std::int64_t kStepBesideWindows = 128, kShortStep = 32, kPartWorthShortSteps = 16;

constexpr std::int64_t kRepeated = 64;  // tokens at once

// Blocks of which thinned heads hold something: those of whole passages, but for the first and a last one, where a passage
// may lie in two blocks; and those of pinned rows, which stay alone.
std::int64_t most_thinned_blocks(const ProceduralSpec& p) {
  std::int64_t blocks = ((p.full_rows + p.block) / kPassage + 2) * (p.block % kPassage == 0 ? 1 : 2);
  for (const PosRange& pin : p.pins) blocks += (pin.last - pin.first - 1) / p.block + 2;
  return blocks;
}

}  // namespace

HeadRows::Kind rows_kind(const ProceduralSpec& spec, const HeadPlan& plan) {
  using Kind = HeadRows::Kind;
  if (!plan.full) return spec.keeps_scores ? Kind::summaries_scored : Kind::summaries;
  return spec.keeps_scores && !plan.whole && spec.full_rows > 0 ? Kind::exact_scored : Kind::exact;
}

bool grows(const ProceduralSpec& spec) {
  bool grows = spec.levels == 0;
  for (const auto& layer : spec.plans)
    for (const HeadPlan& plan : layer) grows = grows || (plan.full && (spec.full_rows == 0 || plan.whole));
  return grows;
}

std::int64_t longest_step_beside_windows(const KvSpec& spec) {
  const RowStage types = window_types(spec);
  std::int64_t token = 0;  // its bytes in these layers
  for (const LayerSpec& layer : spec.layers)
    if (layer.window)
      token += layer.kv_heads *
               (dtype_bytes(types.key_type, layer.head_dim) + dtype_bytes(types.value_type, layer.head_dim));
  const std::int64_t freed = token * (kStepBesideWindows - kShortStep);
  return freed > spec.procedural->budget / kPartWorthShortSteps && spec.procedural->budget > 0
             ? kShortStep
             : kStepBesideWindows;
}

std::int64_t longest_step(const KvSpec& spec) {
  if (!spec.procedural || spec.procedural->budget == 0) return spec.max_step;
  const bool windows = std::any_of(spec.layers.begin(), spec.layers.end(),
                                   [](const LayerSpec& layer) { return layer.window.has_value(); });
  return windows ? std::min(spec.max_step, longest_step_beside_windows(spec)) : spec.max_step;
}

std::int64_t repeated_tokens(const KvSpec& spec) {
  if (spec.procedural->score != RowScore::repetition) return 0;
  return std::min(kRepeated, longest_step_beside_windows(spec));
}

std::int64_t bytes_of_largest_layer(const KvSpec& spec, const RowStage& types, std::int64_t rows) {
  std::int64_t most = 0;
  for (const LayerSpec& layer : spec.layers)
    most = std::max(most, most_page_bytes(row_format(spec, layer, types), rows));
  return most;
}

ProceduralBytes most_bytes(const KvSpec& spec, Pos tokens) {
  const ProceduralSpec& p = *spec.procedural;
  const RowStage types = window_types(spec);
  const Pos end = tokens == 0 ? kWithoutEnd : std::min(tokens, kLongestText);
  // Rows go block by block, and tile by tile.
  const std::int64_t begun = p.block % kTileRows == 0 ? 0 : kTileRows;
  const std::int64_t exact = std::min<std::int64_t>(end, p.window + spec.slack + p.block + begun);
  const std::int64_t blocks_read =
      end < p.window + spec.slack + p.block ? 0 : (end - p.window - spec.slack) / p.block;
  std::int64_t blocks = blocks_read;
  if (p.levels > 0) blocks = std::min(blocks, most_blocks(p.levels));
  const std::int64_t all = blocks_read * p.block;
  const std::int64_t pinned = std::min(all, pinned_within(p, p.sinks, end));

  ProceduralBytes bytes;
  bytes.grows = grows(p);
  // Of the newest position and those that can be taken back, and memory that waits for the next.
  bytes.carried = carried_bytes(spec) * (spec.slack + 2);
  const std::int64_t step = std::min(longest_step_beside_windows(spec), p.window + spec.slack + p.block);
  bool whole = false;  // is any head one that never thins out
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const RowFormat format = row_format(spec, layer, types);
    if (layer.window) {
      const std::int64_t rows = std::min<std::int64_t>(end, *layer.window + spec.slack + step + kTileRows);
      bytes.rings += most_page_bytes(format, rows);
    } else {
      bytes.window += most_page_bytes(format, exact);
      // Sinks lie on pages of their own once the window has moved on.
      if (blocks_read > 1) bytes.window += page_bytes(format, 0, p.sinks);
    }
    for (const HeadPlan& plan : p.plans[i]) {
      const std::int64_t row = dtype_bytes(type_of_rows(p, plan), layer.head_dim);
      whole = whole || plan.whole;
      if (plan.full) {
        // Rows in a spill file count as little as pages of a mapped model do.
        std::int64_t rows = all;
        if (p.full_rows > 0 && (!plan.whole || !p.spill.empty()))
          rows = std::min(all, p.full_rows + p.block + (plan.whole ? 0 : pinned));
        bytes.full += HeadRows::bytes_for(rows_kind(p, plan), row, row, rows);
      } else {
        // While four blocks merge, both are there.
        bytes.compact += HeadRows::bytes_for(rows_kind(p, plan), row, row, blocks * plan.rows + pinned);
        // Rows that move from head to head fill other pages.
        if (p.adapt != Adapt::off) bytes.compact += kAdaptSlack;
      }
      if (is_spread(p, plan))
        (plan.full ? bytes.full : bytes.compact) += layer.head_dim * static_cast<std::int64_t>(sizeof(float));
    }
  }
  bytes.window += bytes_of_largest_layer(spec, types, repeated_tokens(spec));
  bytes.references =
      References::bytes_for(reference_shape(memory_spec(spec), whole_layer(spec.layers).head_dim));
  if (p.far_from > 0 && blocks_read > 0) {
    // The turns by which blocks and sinks are seen nearer.
    std::int64_t turns = 1 + blocks;
    if (bytes.full > 0)
      turns += p.full_rows > 0 && !whole ? std::min(blocks_read, most_thinned_blocks(p)) : blocks_read;
    for (std::size_t i = 0; i < spec.layers.size(); ++i)
      if (!p.plans[i].empty() && turns_like(p, i) == i)
        bytes.compact += turns * 2 * static_cast<std::int64_t>(p.frequencies[i].size() * sizeof(float));
  }
  return bytes;
}

ProceduralBytes planned_bytes(const KvSpec& spec, Pos position) {
  const ProceduralSpec& p = *spec.procedural;
  ProceduralBytes bytes =
      most_bytes(spec, grows(p) && p.budget_for > 0 ? std::max(p.budget_for, position) : 0);
  bytes.exact_first = bytes_of_stages(spec);
  return bytes;
}

std::string given_bytes(std::int64_t bytes) {
  return bytes % kMiB == 0 ? cat(bytes / kMiB, "M") : cat(bytes, " bytes");
}

std::string enough_for(std::int64_t bytes) {
  const std::int64_t unit = bytes < kMiB ? 1024 : kMiB;
  return cat((bytes + unit - 1) / unit, unit == kMiB ? "M" : "K");
}

std::string why_not_within_budget(const KvSpec& spec, Pos position) {
  const std::int64_t budget = spec.procedural->budget;
  if (budget == 0) return "";
  std::int64_t heads = 0;
  for (const LayerSpec& layer : spec.layers) heads += layer.kv_heads;
  // No model has as many heads; a file may say so, and sums over them must not overflow.
  const std::int64_t most =
      heads > kMostHeads ? std::numeric_limits<std::int64_t>::max() : planned_bytes(spec, position).total();
  if (most <= budget) return "";
  return cat("its procedural memory may take ", heads > kMostHeads ? "any number of bytes" : enough_for(most),
             ", more than the KV budget of ", given_bytes(budget));
}

}  // namespace kvtide
