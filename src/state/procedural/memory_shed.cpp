// Shedding: outliers that no longer count for anything go, and those of a level that holds too many. What
// summaries stand for stays.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "state/procedural/memory.h"

namespace kvtide {

// What would be lost with a row. Scores fade with every consolidation, by what outliers do not hold on to; a
// block's are brought up to date when they are asked for, so that no work grows with the text.
double ProceduralMemory::score(const Head& head, std::int64_t row, const Block& block) const {
  const float as_written = head.rows->note(row).score;
  const auto written = static_cast<double>(as_written);
  const auto ticks = static_cast<double>(counts_.consolidations - block.tick);
  if (as_written == kSummaryScore || spec_.decay == 0.0f || ticks == 0.0 ||
      is_pinned(spec_, head.rows->position(row)))
    return written;
  return written *
         std::pow(1.0 - static_cast<double>(spec_.decay) * (1.0 - static_cast<double>(spec_.retention)),
                  ticks);
}

ProceduralMemory::Dropping ProceduralMemory::prepare_drop(Head& target, std::vector<bool> gone) {
  Dropping dropping{&target, std::move(gone), {}};
  if (std::find(dropping.gone.begin(), dropping.gone.end(), true) == dropping.gone.end()) return dropping;
  writable(target);
  const std::int64_t end =
      std::accumulate(target.block_rows.begin(), target.block_rows.end(), std::int64_t{0});
  for (std::int64_t row = 0; row < end; ++row)
    if (!dropping.gone[static_cast<std::size_t>(row)]) dropping.kept.push_back(row);
  return dropping;
}

double ProceduralMemory::drop_rows(const Dropping& dropping) noexcept {
  const std::vector<bool>& gone = dropping.gone;
  if (std::find(gone.begin(), gone.end(), true) == gone.end()) return 0.0;
  Head& target = *dropping.head;
  HeadRows& rows = *target.rows;
  std::int64_t row = 0;
  double tokens = 0.0;
  for (std::int64_t& block : target.block_rows) {
    const std::int64_t end = row + block;
    for (; row < end; ++row) {
      if (!gone[static_cast<std::size_t>(row)]) continue;
      --block;
      tokens += static_cast<double>(rows.note(row).count);
    }
  }
  rows.keep(dropping.kept, row);
  target.lost += tokens;
  return tokens;
}

void ProceduralMemory::shed() {
  for (std::size_t layer = 0; layer < heads_.size(); ++layer) {
    if (spec_.shed_below > 0.0f)
      for (std::size_t h = 0; h < heads_[layer].size(); ++h)
        if (plain(layer, h)) shed_soft(heads_[layer][h]);
    if (spec_.level_rows > 0) shed_hard(layer);
  }
}

void ProceduralMemory::shed_soft(Head& target) {
  std::vector<bool> gone(static_cast<std::size_t>(target.rows->rows()), false);
  std::int64_t row = 0, shed = 0;
  for (std::size_t b = 0; b < target.block_rows.size(); ++b)
    for (std::int64_t i = 0; i < target.block_rows[b]; ++i, ++row) {
      const bool low = score(target, row, blocks_[b]) < static_cast<double>(spec_.shed_below);
      if (!low || is_pinned(spec_, target.rows->position(row))) continue;
      gone[static_cast<std::size_t>(row)] = true;
      ++shed;
    }
  const Dropping dropping = prepare_drop(target, std::move(gone));
  counts_.shed_soft += shed;
  counts_.shed_mass += drop_rows(dropping);
}

// A level of a layer that holds too many rows keeps those with the highest scores, whichever head they are
// of; summaries go last, those of the fewest tokens first. Pinned rows stay and do not count.
void ProceduralMemory::shed_hard(std::size_t layer) {
  std::int64_t heads = 0;
  for (std::size_t h = 0; h < heads_[layer].size(); ++h) heads += plain(layer, h);
  if (heads == 0) return;
  const auto most = static_cast<std::size_t>(spec_.level_rows * heads);
  for (int level = 1; level <= std::max(1, spec_.levels); ++level) {
    // The worst on top; of equals the youngest row of the last head goes first.
    using Candidate = std::tuple<double, float, std::int64_t, std::int64_t>;  // score, tokens, -head, -row
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> rows;
    std::vector<std::vector<bool>> gone(heads_[layer].size());
    std::int64_t shed = 0;
    for (std::size_t h = 0; h < heads_[layer].size(); ++h) {
      if (!plain(layer, h)) continue;
      const Head& source = heads_[layer][h];
      gone[h].resize(static_cast<std::size_t>(source.rows->rows()), false);
      std::int64_t row = 0;
      for (std::size_t b = 0; b < source.block_rows.size(); ++b)
        for (std::int64_t i = 0; i < source.block_rows[b]; ++i, ++row) {
          const RowNote note = source.rows->note(row);
          if (blocks_[b].level != level || is_pinned(spec_, note.position)) continue;
          rows.emplace(score(source, row, blocks_[b]), note.count, -static_cast<std::int64_t>(h), -row);
        }
    }
    for (; rows.size() > most; rows.pop(), ++shed) {
      const auto& [worst, tokens, minus_head, minus_row] = rows.top();
      gone[static_cast<std::size_t>(-minus_head)][static_cast<std::size_t>(-minus_row)] = true;
    }
    if (shed == 0) continue;
    std::vector<Dropping> droppings;
    for (std::size_t h = 0; h < heads_[layer].size(); ++h)
      if (!gone[h].empty()) droppings.push_back(prepare_drop(heads_[layer][h], std::move(gone[h])));
    ++counts_.level_hits;
    counts_.shed_hard += shed;
    for (const Dropping& dropping : droppings) drop_rows(dropping);
  }
}

}  // namespace kvtide
