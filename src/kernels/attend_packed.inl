// attend_packed.inl: the fold of a tile whose keys and values are each met as bf16 pairs or in whole numbers. Rows are packed
// once for all queries. Included once by each attend.<isa>.cpp after attend.inl.
#include "kernels/attend_pairs.inl"
// After the pairs.
#include "kernels/attend_few_halves.inl"
// After the halves.
#include "kernels/attend_few.inl"
#include "kernels/attend_ints.inl"

namespace kvtide {
namespace {

// A tile's rows as products take them, made once for all queries.
struct PackedTile {
  alignas(64) std::uint32_t keys[kTileRows * kMaxPairs];
  alignas(64) std::uint32_t values[kTileRows * kMaxPairs];
  alignas(64) Steps key_steps, value_steps;  // of rows in whole numbers
  alignas(64) float mass[kTileRows];

  static bool whole_keys(const AttendTile& tile) {
    return in_whole_numbers(tile.key_type) && tile.rotation == nullptr;
  }
  static bool whole_values(const AttendTile& tile) { return in_whole_numbers(tile.value_type); }

  void fill(const AttendTile& tile, const AttendQueries& queries) {
    read_mass(tile, mass);
    if (whole_keys(tile))
      with_block(tile.key_type,
                 [&]<class Block>() { pack_byte_keys<Block>(tile, queries.head_dim, keys, key_steps); });
    else
      with_row<RoundedF32Row>(tile.key_type, [&]<class Row>() { pack_key_rows<Row>(tile, queries, keys); });
    if (whole_values(tile))
      with_block(tile.value_type, [&]<class Block>() {
        pack_byte_values<Block>(tile, queries.head_dim, values, value_steps);
      });
    else
      with_row<RoundedF32Row>(tile.value_type,
                              [&]<class Row>() { pack_value_rows<Row>(tile, queries, values); });
  }
};

// Folds the tile into at most kQueriesAtOnce queries, whose scores and weights stay in the first cache.
inline void fold_packed(const AttendTile& tile, const PackedTile& packed, const AttendQueries& queries,
                        const AttendPartials& into) {
  TileWeights<kQueriesAtOnce> weights;
  const int from = tile.begin & ~(2 * kLanes - 1), to = (tile.end + 2 * kLanes - 1) & ~(2 * kLanes - 1);
  const bool whole_values = PackedTile::whole_values(tile);
  const auto scores = weights.scores;
  if (PackedTile::whole_keys(tile))
    score_ints(tile, queries, packed.keys, packed.key_steps, packed.mass, scores);
  else
    score_pairs(tile, queries, packed.keys, packed.mass, scores);
  weights.join(queries, into, [&](float* max, float* sum) {
    for (int i = 0; i < queries.count; i += kLanes) {
      const int count = queries.count - i < kLanes ? queries.count - i : kLanes;
      if (whole_values)
        soften_ints(scores + i, count, max + i, sum + i);
      else if (to - from == kTileRows)
        soften_pairs<kTileRows / kLanes>(scores + i, count, from, weights.p + i, max + i, sum + i);
      else
        soften_pairs<2>(scores + i, count, from, weights.p + i, max + i, sum + i);
    }
  });
  if (whole_values)
    mix_ints(tile, queries, scores, weights.keep, weights.take, packed.values, packed.value_steps, into.out);
  else
    mix_pairs(tile, queries, weights.p, weights.keep, weights.take, packed.values, into.out);
}

}  // namespace
}  // namespace kvtide

#include "kernels/attend_few_ints.inl"

namespace kvtide {
namespace {

// The vectors of rows of which some query sees some; none where no query sees any.
inline AttendTile seen_part(AttendTile tile, const AttendQueries& queries) {
  int lo = tile.end, hi = tile.begin;
  for (int i = 0; i < queries.count; ++i) {
    if (queries.lo[i] >= queries.hi[i]) continue;
    lo = queries.lo[i] < lo ? queries.lo[i] : lo;
    hi = queries.hi[i] > hi ? queries.hi[i] : hi;
  }
  const int first = lo & ~(kLanes - 1), last = (hi + kLanes - 1) & ~(kLanes - 1);
  const int less = first > tile.begin ? first - tile.begin : 0;
  tile.begin += less;
  tile.keys += less * tile.key_stride;
  tile.values += less * tile.value_stride;
  if (tile.log_mass != nullptr) tile.log_mass += less;
  if (last < tile.end) tile.end = last;
  return tile;
}

void fold_tile_rounded(const AttendTile& tile, const AttendQueries& queries,
                       const AttendPartials& into) noexcept {
  if (fold_few(tile, queries, into)) return;
  const AttendTile seen = seen_part(tile, queries);
  PackedTile packed;
  packed.fill(seen, queries);
  for (int first = 0; first < queries.count; first += kQueriesAtOnce) {
    AttendQueries some = queries;
    some.count = queries.count - first < kQueriesAtOnce ? queries.count - first : kQueriesAtOnce;
    some.q += first * queries.padded_dim;
    some.pairs += first * queries.padded_dim / 2 * kPairWords;
    some.lo += first;
    some.hi += first;
    if (queries.words != nullptr) {
      some.words += first * queries.head_dim / 2;
      some.steps += first * queries.head_dim / kBlock;
    }
    const AttendTile part = seen_part(seen, some);
    if (part.begin >= part.end) continue;
    fold_packed(part, packed, some,
                {into.max + first, into.sum + first, into.out + first * queries.padded_dim});
  }
}

}  // namespace
}  // namespace kvtide
