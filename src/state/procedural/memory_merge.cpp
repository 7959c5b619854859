// Consolidation: old blocks of plain heads become one, level by level.
#include <algorithm>
#include <numeric>

#include "base/stopwatch.h"
#include "state/procedural/budget.h"
#include "state/procedural/memory.h"
#include "state/procedural/seal_head.h"

namespace kvtide {

void ProceduralMemory::consolidate(ThreadPool& pool, const Kernels& kernels, Pos position) {
  for (int level = 1; level <= spec_.levels; ++level) {
    // At the last level two become one: the oldest text fades.
    const bool last_level = level == spec_.levels;
    const auto merged_blocks = static_cast<std::size_t>(last_level ? kFadingBlocks : kMergedBlocks);
    const auto most = static_cast<std::size_t>(level == 1 ? kFirstLevelBlocks : kLevelBlocks);
    std::vector<std::size_t> here;
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      if (blocks_[b].level == level) here.push_back(b);
    if (here.size() < most) continue;
    const Stopwatch watch;
    const std::size_t begin = here.front(), end = begin + merged_blocks;
    std::vector<AskedAhead> made;
    const MergeRequest request{
        .spec = spec_,
        .references = *references_,
        .asked = place_ahead(spec_, judges_of_merge(*references_, sealed_, position), position, made)};
    const auto plain_heads = heads_where([](const HeadPlan& p) { return !p.full; });
    std::vector<std::vector<std::int64_t>> kept(plain_heads.size());
    each_with_summariser(pool, kernels, kept.size(), [&](Summariser& summariser, std::size_t i) {
      const auto [layer, h] = plain_heads[i];
      const Head& source = head(layer, h);
      std::vector<MergeBlock> merged;
      std::int64_t row = 0, inside = 0;
      for (std::size_t b = 0; b < end; ++b) {
        if (b >= begin) {
          merged.push_back({row, source.block_rows[b], rotation(layer, blocks_[b].shift)});
          inside += source.block_rows[b];
        }
        row += source.block_rows[b];
      }
      // Heads whose share changes from block to block keep the mean, so that sums stay what they were.
      std::int64_t keep = plan(layer, h).rows;
      if (spec_.adapt != Adapt::off) {
        for (row -= inside; inside > 0; --inside, ++row)
          keep += is_pinned(spec_, source.rows->position(row)) ? 0 : 1;
        keep = (keep - plan(layer, h).rows) / static_cast<std::int64_t>(merged.size());
      }
      kept[i] = merge_head(request, kernels, summariser, *source.rows, merged, layer, h,
                           layers_[static_cast<std::size_t>(layer)].head_dim, keep);
    });
    Block merged = blocks_[begin];
    merged.last = blocks_[end - 1].last;
    merged.level = last_level ? level : level + 1;
    merged.tick = counts_.consolidations;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      Head& target = head(plain_heads[i].first, plain_heads[i].second);
      std::vector<bool> gone(static_cast<std::size_t>(target.rows->rows()), false);
      HeadRows& rows = writable(target);
      std::int64_t row = 0;
      for (std::size_t b = 0; b < end; row += target.block_rows[b++])
        for (std::int64_t r = row; b >= begin && r < row + target.block_rows[b]; ++r) {
          gone[static_cast<std::size_t>(r)] = !std::binary_search(kept[i].begin(), kept[i].end(), r);
          rows.set_score(r, static_cast<float>(score(target, r, blocks_[b])));
        }
      drop_rows(target, gone);
      const auto from = target.block_rows.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto to = from + static_cast<std::ptrdiff_t>(merged_blocks);
      *from = std::accumulate(from, to, std::int64_t{0});
      target.block_rows.erase(from + 1, to);
    }
    blocks_[begin] = merged;
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                  blocks_.begin() + static_cast<std::ptrdiff_t>(end));
    ++counts_.consolidations;
    note_event(true, merged, position, watch.seconds());
  }
}

}  // namespace kvtide
