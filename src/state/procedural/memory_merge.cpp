// Consolidation: old blocks of plain heads become one, level by level.
#include "state/procedural/memory.h"

#include <algorithm>

#include "state/procedural/budget.h"
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
    const std::size_t begin = here.front(), end = begin + merged_blocks;
    const MergeRequest request{
        .spec = spec_, .references = *references_, .window_first = sealed_, .position = position};
    struct Item {
      int layer, head;
      std::vector<std::int64_t> kept;
      double shed = 0.0;
    };
    std::vector<Item> items;
    for (std::size_t layer = 0; layer < heads_.size(); ++layer)
      for (std::size_t h = 0; h < heads_[layer].size(); ++h)
        if (!plan(static_cast<int>(layer), static_cast<int>(h)).full)
          items.push_back({static_cast<int>(layer), static_cast<int>(h), {}});
    pool.run(static_cast<std::int64_t>(items.size()), [&](std::int64_t i) {
      Item& item = items[static_cast<std::size_t>(i)];
      const Head& source = head(item.layer, item.head);
      std::vector<MergeBlock> merged;
      std::int64_t row = 0;
      for (std::size_t b = 0; b < end; ++b) {
        if (b >= begin) merged.push_back({row, source.block_rows[b], blocks_[b].shift});
        row += source.block_rows[b];
      }
      item.kept = merge_head(request, kernels, *source.rows, merged, item.layer, item.head,
                             layers_[static_cast<std::size_t>(item.layer)].head_dim);
    });
    for (Item& item : items) {
      Head& target = head(item.layer, item.head);
      std::int64_t before = 0, inside = 0;
      for (std::size_t b = 0; b < begin; ++b) before += target.block_rows[b];
      for (std::size_t b = begin; b < end; ++b) inside += target.block_rows[b];
      std::vector<std::int64_t> kept;
      for (std::int64_t row = 0; row < before; ++row) kept.push_back(row);
      kept.insert(kept.end(), item.kept.begin(), item.kept.end());
      double mass = 0.0, left = 0.0;
      for (std::int64_t row = before; row < before + inside; ++row)
        mass += static_cast<double>(target.rows->note(row).count);
      for (const std::int64_t row : item.kept) left += static_cast<double>(target.rows->note(row).count);
      counts_.shed_mass += mass - left;
      writable(target).keep(kept, before + inside);
      target.block_rows[begin] = static_cast<std::int64_t>(item.kept.size());
      target.block_rows.erase(target.block_rows.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                              target.block_rows.begin() + static_cast<std::ptrdiff_t>(end));
    }
    blocks_[begin].last = blocks_[end - 1].last;
    blocks_[begin].level = last_level ? level : level + 1;
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                  blocks_.begin() + static_cast<std::ptrdiff_t>(end));
    ++counts_.consolidations;
  }
}

}  // namespace kvtide
