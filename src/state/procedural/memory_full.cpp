// Full heads that may not keep everything: their old blocks thin out.
#include "state/procedural/memory.h"

#include <algorithm>
#include <numeric>

#include "state/procedural/budget.h"

namespace kvtide {

// Full heads beyond their share: the newest text stays whole; of what is older, the oldest among the fullest
// blocks loses the lower half of its rows, again and again. All full heads hold the same number of rows of a
// block.
void ProceduralMemory::thin_full_heads() {
  if (spec_.full_rows == 0 || full_.empty()) return;
  std::vector<std::int64_t> sizes;
  for (std::size_t layer = 0; layer < heads_.size() && sizes.empty(); ++layer)
    for (std::size_t h = 0; h < heads_[layer].size() && sizes.empty(); ++h)
      if (spec_.heads[layer][h].full) sizes = heads_[layer][h].block_rows;
  std::int64_t rows = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const Pos intact = sealed_ - spec_.full_rows / 8 * kIntactEighths;
  while (rows > spec_.full_rows) {
    const auto old_end = sizes.begin() + std::count_if(full_.begin(), full_.end(),
                                                       [&](const FullBlock& b) { return b.first < intact; });
    auto fullest = std::max_element(sizes.begin(), old_end == sizes.begin() ? sizes.end() : old_end);
    const std::int64_t left = *fullest / 2 < kLeastFullRows ? 0 : *fullest / 2;
    if (left == 0) fullest = sizes.begin();  // all are thin: the oldest goes
    const auto block = fullest - sizes.begin();
    for (std::size_t layer = 0; layer < heads_.size(); ++layer)
      for (std::size_t h = 0; h < heads_[layer].size(); ++h)
        if (spec_.heads[layer][h].full) thin(heads_[layer][h], static_cast<std::size_t>(block), left);
    rows -= *fullest - left;
    ++counts_.thinned;
    *fullest = left;
    if (left > 0) continue;
    sizes.erase(fullest);
    full_.erase(full_.begin() + block);
  }
}

// Keeps the `left` most telling rows of a block.
void ProceduralMemory::thin(Head& target, std::size_t block, std::int64_t left) {
  const std::int64_t before =
      std::accumulate(target.block_rows.begin(),
                      target.block_rows.begin() + static_cast<std::ptrdiff_t>(block), std::int64_t{0});
  const std::int64_t size = target.block_rows[block];
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), before);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return target.rows->note(a).score > target.rows->note(b).score;
  });
  order.resize(static_cast<std::size_t>(left));
  std::sort(order.begin(), order.end());
  counts_.shed_mass += static_cast<double>(size - left);
  std::vector<std::int64_t> kept(static_cast<std::size_t>(before));
  std::iota(kept.begin(), kept.end(), 0);
  kept.insert(kept.end(), order.begin(), order.end());
  writable(target).keep(kept, before + size);
  if (left > 0)
    target.block_rows[block] = left;
  else
    target.block_rows.erase(target.block_rows.begin() + static_cast<std::ptrdiff_t>(block));
}

}  // namespace kvtide
