// Full heads that may not keep everything in memory: their old text thins out, or goes to the spill file.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "state/procedural/budget.h"
#include "state/procedural/memory.h"
#include "state/procedural/passages.h"

namespace kvtide {

// Full heads beyond their share: the newest text stays whole; of what is older, the passages go that are worth least: the
// rarity of their tokens less the logarithm of their age. Pinned rows stay beside their share. All heads that thin out hold
// the same rows: they copy together, and only what all of them hold.
void ProceduralMemory::thin_full_heads(std::span<const TokenId> tokens) {
  const auto thinning = heads_where([](const HeadPlan& p) { return p.full && !p.whole; });
  if (spec_.full_rows == 0 || thinning.empty()) return;
  const std::vector<bool> gone = rows_to_thin(thinning, tokens);
  if (gone.empty()) return;
  std::vector<Dropping> droppings;
  for (const auto& [layer, h] : thinning) droppings.push_back(prepare_drop(head(layer, h), gone));
  for (const Dropping& dropping : droppings) counts_.shed_mass += drop_rows(dropping);
  ++counts_.thinned;
  const Head& any = head(thinning[0].first, thinning[0].second);
  for (std::size_t b = full_.size(); b-- > 0;) {
    if (any.block_rows[b] > 0) continue;
    full_.erase(full_.begin() + static_cast<std::ptrdiff_t>(b));
    for (const auto& [layer, h] : thinning) {
      auto& blocks = head(layer, h).block_rows;
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(b));
    }
  }
}

// By row of each of these heads. Empty: all can stay.
std::vector<bool> ProceduralMemory::rows_to_thin(const std::vector<std::pair<int, int>>& heads,
                                                 std::span<const TokenId> tokens) const {
  const HeadRows& rows = *head(heads[0].first, heads[0].second).rows;
  const std::int64_t share = spec_.full_rows + pinned_within(spec_, spec_.sinks, sealed_);
  std::int64_t count = rows.rows();
  if (count <= share) return {};
  const Pos intact = sealed_ - spec_.full_rows / 8 * kIntactEighths;
  // In files of older versions the heads do not hold the same rows of every passage, only as many of every block.
  const auto is_free = [&](std::int64_t row) {
    return std::none_of(heads.begin(), heads.end(), [&](const std::pair<int, int>& at) {
      return is_pinned(spec_, head(at.first, at.second).rows->position(row));
    });
  };
  struct Passage {
    Pos number;
    std::vector<std::int64_t> rows;
    double worth;
  };
  std::vector<Passage> old;  // in the order of the text
  for (std::int64_t row = 0; row < rows.rows(); ++row) {
    const Pos number = rows.position(row) / kPassage;
    if (number * kPassage >= intact || !is_free(row)) continue;
    if (old.empty() || old.back().number != number) old.push_back({number, {}, 0.0});
    old.back().rows.push_back(row);
  }
  const std::vector<double> rarity =
      rarity_of_passages(tokens.first(std::min(tokens.size(), static_cast<std::size_t>(sealed_))));
  for (Passage& passage : old) {
    const double rare =
        passage.number < std::ssize(rarity) ? rarity[static_cast<std::size_t>(passage.number)] : 0.0;
    passage.worth = rare - std::log(static_cast<double>(sealed_ - passage.number * kPassage));
  }
  // Of equals the oldest goes first.
  std::stable_sort(old.begin(), old.end(),
                   [](const Passage& a, const Passage& b) { return a.worth < b.worth; });
  std::vector<bool> gone(static_cast<std::size_t>(rows.rows()), false);
  for (const Passage& passage : old) {
    if (count <= share) break;
    for (const std::int64_t row : passage.rows) gone[static_cast<std::size_t>(row)] = true;
    count -= std::ssize(passage.rows);
  }
  return gone;
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
