// Full heads that may not keep everything in memory: their old blocks thin out, or go to the spill file.
#include <algorithm>
#include <numeric>

#include "state/procedural/budget.h"
#include "state/procedural/memory.h"

namespace kvtide {

// Full heads beyond their share: the newest text stays whole; of what is older, the oldest among the fullest
// blocks loses the lower half of its rows, again and again. Pinned rows stay and do not count. All heads that
// thin out hold the same number of rows of a block.
void ProceduralMemory::thin_full_heads() {
  const auto thinning = heads_where([](const HeadPlan& p) { return p.full && !p.whole; });
  if (spec_.full_rows == 0 || thinning.empty()) return;
  std::vector<std::int64_t> sizes = head(thinning[0].first, thinning[0].second).block_rows, pinned;
  for (std::size_t b = 0; b < full_.size(); ++b) {
    // Nothing that is pinned ever went.
    const Pos last = b + 1 < full_.size() ? full_[b + 1].first : sealed_;
    pinned.push_back(pinned_within(spec_, full_[b].first, last));
    sizes[b] -= pinned[b];
  }
  std::int64_t rows = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const Pos intact = sealed_ - spec_.full_rows / 8 * kIntactEighths;
  while (rows > spec_.full_rows) {
    const auto old_end = sizes.begin() + std::count_if(full_.begin(), full_.end(),
                                                       [&](const FullBlock& b) { return b.first < intact; });
    auto fullest = std::max_element(sizes.begin(), old_end == sizes.begin() ? sizes.end() : old_end);
    const std::int64_t left = *fullest / 2 < kLeastFullRows ? 0 : *fullest / 2;
    // When all are thin the oldest goes.
    if (left == 0)
      fullest = std::find_if(sizes.begin(), sizes.end(), [](std::int64_t size) { return size > 0; });
    const auto block = fullest - sizes.begin();
    const auto worth = worth_of_passages(thinning, static_cast<std::size_t>(block));
    std::vector<Dropping> droppings;
    for (const auto& [layer, h] : thinning)
      droppings.push_back(thin(head(layer, h), static_cast<std::size_t>(block), left, worth));
    for (const Dropping& dropping : droppings) drop_rows(dropping);
    rows -= *fullest - left;
    ++counts_.thinned;
    *fullest = left;
    if (left > 0 || pinned[static_cast<std::size_t>(block)] > 0) continue;
    sizes.erase(fullest);
    pinned.erase(pinned.begin() + block);
    full_.erase(full_.begin() + block);
    for (const auto& [layer, h] : thinning) {
      auto& blocks = head(layer, h).block_rows;
      blocks.erase(blocks.begin() + block);
    }
  }
}

// What the rows of a block's passages are worth to all heads that thin out: a passage is recalled as a whole,
// by heads that hand on to one another, or not at all.
std::map<Pos, double> ProceduralMemory::worth_of_passages(const std::vector<std::pair<int, int>>& heads,
                                                          std::size_t block) const {
  std::map<Pos, double> worth;
  for (const auto& [layer, h] : heads) {
    const Head& source = head(layer, h);
    std::int64_t row =
        std::accumulate(source.block_rows.begin(),
                        source.block_rows.begin() + static_cast<std::ptrdiff_t>(block), std::int64_t{0});
    for (std::int64_t i = 0; i < source.block_rows[block]; ++i, ++row)
      worth[source.rows->position(row) / kPassage] += static_cast<double>(source.rows->note(row).score);
  }
  return worth;
}

// Keeps the `left` rows of a block that lie in its most telling passages, and the pinned ones.
ProceduralMemory::Dropping ProceduralMemory::thin(Head& target, std::size_t block, std::int64_t left,
                                                  const std::map<Pos, double>& worth) {
  const std::int64_t before =
      std::accumulate(target.block_rows.begin(),
                      target.block_rows.begin() + static_cast<std::ptrdiff_t>(block), std::int64_t{0});
  const std::int64_t size = target.block_rows[block];
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), before);
  const auto pinned_end = std::stable_partition(order.begin(), order.end(), [&](std::int64_t row) {
    return is_pinned(spec_, target.rows->position(row));
  });
  std::stable_sort(pinned_end, order.end(), [&](std::int64_t a, std::int64_t b) {
    const Pos first = target.rows->position(a) / kPassage, second = target.rows->position(b) / kPassage;
    if (first != second) {
      const double x = worth.at(first), y = worth.at(second);
      return x > y || (x == y && first < second);
    }
    return target.rows->note(a).score > target.rows->note(b).score;
  });
  order.resize(static_cast<std::size_t>(pinned_end - order.begin() + left));
  std::vector<bool> gone(static_cast<std::size_t>(target.rows->rows()), false);
  std::fill_n(gone.begin() + before, size, true);
  for (const std::int64_t row : order) gone[static_cast<std::size_t>(row)] = false;
  return prepare_drop(target, std::move(gone));
}

// Heads that keep everything and have a spill file hold `full_rows` rows in memory, the next block included.
// First the file, then the memory: when the file takes no more, nothing has changed.
void ProceduralMemory::make_room_in_memory() {
  if (spill_ == nullptr || spec_.full_rows == 0) return;
  struct Move {
    Head* head;
    std::shared_ptr<SpilledRows> target;
    std::int64_t blocks, rows;
  };
  std::vector<Move> moves;
  for (const auto& [layer, h] : heads_where([](const HeadPlan& p) { return p.whole; })) {
    Head& source = head(layer, h);
    Move move{&source, nullptr, 0, 0};
    while (source.rows->rows() - move.rows + spec_.block > spec_.full_rows &&
           move.blocks < static_cast<std::int64_t>(source.block_rows.size()))
      move.rows += source.block_rows[static_cast<std::size_t>(move.blocks++)];
    if (move.blocks == 0) continue;
    // What a fork can see is never written.
    if (source.spilled == nullptr)
      move.target =
          std::make_shared<SpilledRows>(spill_, source.rows->key_bytes(), source.rows->value_bytes());
    else
      move.target = sole_owner(source.spilled) ? source.spilled : source.spilled->clone();
    move.target->write_ahead(source.rows->key(0), source.rows->value(0), move.rows);
    writable(source);
    moves.push_back(std::move(move));
  }
  for (Move& move : moves) {
    move.target->take(move.rows, move.blocks);
    move.head->spilled = std::move(move.target);
    move.head->rows->keep({}, move.rows);
    auto& blocks = move.head->block_rows;
    blocks.erase(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(move.blocks));
  }
}

}  // namespace kvtide
