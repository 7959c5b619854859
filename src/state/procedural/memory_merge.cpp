// Consolidation: old blocks of plain heads become one, so that their number stays.
#include <algorithm>
#include <limits>
#include <numeric>

#include "base/stopwatch.h"
#include "state/procedural/budget.h"
#include "state/procedural/memory.h"
#include "state/procedural/reference_rows.h"
#include "state/procedural/seal_head.h"
#include "state/procedural/stored_row.h"

namespace kvtide {
namespace {

// Turns the keys of some rows: once blocks are one they are seen from one distance.
void move_up(HeadRows& rows, DType type, std::span<const float> mean_key, const Kernels& kernels,
             const std::vector<float>& turn, std::int64_t first, std::int64_t count, int head_dim) noexcept {
  float room[kMaxHeadDim];
  const std::span<float> key(room, static_cast<std::size_t>(head_dim));
  const auto pairs = static_cast<std::int64_t>(turn.size() / 2);
  for (std::int64_t row = first; row < first + count; ++row) {
    read_row(kernels, type, rows.key(row), mean_key, key);
    kernels.elementwise.rope(key.data(), turn.data(), turn.data() + pairs, pairs);
    store_row(kernels, type, key, mean_key, rows.key(row));
  }
}

struct RowRange {
  std::int64_t first, last;
};

// The rows of blocks `begin` and `begin` + 1.
RowRange rows_of_pair(const std::vector<std::int64_t>& block_rows, std::size_t begin) noexcept {
  const auto pair = block_rows.begin() + static_cast<std::ptrdiff_t>(begin);
  const std::int64_t first = std::accumulate(block_rows.begin(), pair, std::int64_t{0});
  return {first, first + pair[0] + pair[1]};
}

}  // namespace

// The pair whose text is shortest for its age: what is twice as old is kept half as finely.
std::size_t ProceduralMemory::fading_pair(Pos position) const {
  std::size_t best = 0;
  double least = std::numeric_limits<double>::max();
  for (std::size_t b = 0; b + 1 < blocks_.size(); ++b) {
    const auto length = static_cast<double>(blocks_[b + 1].last - blocks_[b].first);
    const auto age = static_cast<double>(position - blocks_[b + 1].last);
    if (length / age >= least) continue;
    least = length / age;
    best = b;
  }
  return best;
}

std::vector<MergedHead> ProceduralMemory::rows_of_merge(ThreadPool& pool, const Kernels& kernels,
                                                        const std::vector<std::pair<int, int>>& heads,
                                                        std::size_t begin, Pos position) const {
  std::vector<AskedAhead> made;
  const MergeRequest request{
      .spec = spec_,
      .references = *references_,
      .asked = place_ahead(spec_, judges_of_merge(*references_, sealed_, position), position, made)};
  std::vector<MergedHead> kept(heads.size());
  each_with_summariser(pool, kernels, kept.size(), [&](Summariser& summariser, std::size_t i) {
    const auto [layer, h] = heads[i];
    const Head& source = head(layer, h);
    const RowRange pair = rows_of_pair(source.block_rows, begin);
    std::vector<MergeBlock> merged;
    std::int64_t row = pair.first;
    for (std::size_t b = begin; b < begin + 2; row += source.block_rows[b++])
      merged.push_back({row, source.block_rows[b], rotation(layer, blocks_[b].shift)});
    // Heads whose share changes from block to block keep the mean, so that sums stay what they were.
    std::int64_t keep = plan(layer, h).rows;
    if (spec_.adapt != Adapt::off) {
      keep = 0;
      for (row = pair.first; row < pair.last; ++row)
        keep += is_pinned(spec_, source.rows->position(row)) ? 0 : 1;
      keep /= static_cast<std::int64_t>(merged.size());
    }
    kept[i] = merge_head(request, kernels, summariser, *source.rows, merged, layer, h,
                         layers_[static_cast<std::size_t>(layer)].head_dim, keep, source.mean_key);
  });
  return kept;
}

ProceduralMemory::Block ProceduralMemory::merge_of(std::size_t begin, Pos nearer) const {
  const Block &older = blocks_[begin], &newer = blocks_[begin + 1];
  Block merged = older;
  merged.last = newer.last;
  merged.level = std::min(spec_.levels, std::max(older.level, newer.level) + 1);
  merged.tick = counts_.consolidations;
  merged.reach = std::max(newer.reach, newest_part(newer) - newest_part(older) - nearer + older.reach);
  return merged;
}

// Rows take over the tokens of those that are about to go.
double ProceduralMemory::stand_for(Head& target, const MergedHead& merged) noexcept {
  HeadRows& rows = *target.rows;
  const std::byte* value = merged.values.data();
  double tokens = 0.0;
  for (std::size_t i = 0; i < merged.summaries.size(); ++i, value += rows.value_bytes()) {
    const std::int64_t row = merged.summaries[i];
    tokens += static_cast<double>(rows.note(row).count) - static_cast<double>(merged.notes[i].count);
    rows.stand_for(row, merged.notes[i], value);
  }
  target.lost += tokens;
  return tokens;
}

// Scores of a pair of blocks as they have faded by now.
void ProceduralMemory::refresh_scores(Head& target, std::size_t begin) noexcept {
  std::int64_t row = rows_of_pair(target.block_rows, begin).first;
  for (std::size_t b = begin; b < begin + 2; ++b)
    for (const std::int64_t end = row + target.block_rows[b]; row < end; ++row)
      target.rows->set_score(row, static_cast<float>(score(target, row, blocks_[b])));
}

void ProceduralMemory::consolidate(ThreadPool& pool, const Kernels& kernels, Pos position) {
  while (static_cast<std::int64_t>(blocks_.size()) >= most_blocks(spec_.levels)) {
    const Stopwatch watch;
    const std::size_t begin = fading_pair(position);
    const auto plain_heads = heads_where([](const HeadPlan& p) { return !p.full; });
    const auto kept = rows_of_merge(pool, kernels, plain_heads, begin, position);
    // What is older moves up to what is newer, as near as it was seen; otherwise a long block's newest rows
    // would be seen in the future.
    const Pos nearer = blocks_[begin].shift - blocks_[begin + 1].shift;
    const Block merged = merge_of(begin, nearer);
    std::vector<std::vector<float>> turns(layers_.size());  // per layer
    for (std::size_t layer = 0; layer < turns.size(); ++layer)
      add_turn(spec_.frequencies[layer], nearer, turns[layer]);
    std::vector<Dropping> droppings;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      Head& target = head(plain_heads[i].first, plain_heads[i].second);
      const RowRange pair = rows_of_pair(target.block_rows, begin);
      std::vector<bool> gone(static_cast<std::size_t>(target.rows->rows()), false);
      std::fill(gone.begin() + pair.first, gone.begin() + pair.last, true);
      for (const std::int64_t row : kept[i].kept) gone[static_cast<std::size_t>(row)] = false;
      writable(target);
      droppings.push_back(prepare_drop(target, std::move(gone)));
    }
    std::vector<double> tokens(droppings.size());  // whole numbers: any order of adding them gives the same
    expect_event();
    // From here on nothing needs memory.
    pool.run(std::ssize(droppings), [&](std::int64_t item) {
      const auto i = static_cast<std::size_t>(item);
      const auto layer = static_cast<std::size_t>(plain_heads[i].first);
      Head& target = *droppings[i].head;
      if (spec_.decay > 0.0f && spec_.keeps_scores) refresh_scores(target, begin);
      tokens[i] = stand_for(target, kept[i]);
      tokens[i] += drop_rows(droppings[i]);
      const auto from = target.block_rows.begin() + static_cast<std::ptrdiff_t>(begin);
      if (nearer != 0)
        move_up(*target.rows, spec_.plain_type, target.mean_key, kernels, turns[layer],
                rows_of_pair(target.block_rows, begin).first, *from, layers_[layer].head_dim);
      *from += *(from + 1);
      target.block_rows.erase(from + 1);
    });
    for (const double gone : tokens) counts_.shed_mass += gone;
    blocks_[begin] = merged;
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(begin) + 1);
    ++counts_.consolidations;
    note_event(ProceduralEvent::Kind::consolidation, merged, position, watch.seconds());
  }
}

}  // namespace kvtide
