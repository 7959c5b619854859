// attend_few.inl: attend_pairs.inl for the few queries of a step that writes. Rows go from memory straight into the
// products: packing and multiplying want different parts of the processor, which then work at the same time. The order of
// the arithmetic is that of attend_pairs.inl, number by number. Included by attend_packed.inl after it.
namespace kvtide {
namespace {

// Whole tiles of rows of one type, as most are.
inline bool is_whole(const AttendTile& tile, DType type) {
  return tile.begin == 0 && tile.end == kTileRows && tile.key_type == type && tile.value_type == type &&
         tile.rotation == nullptr;
}

// Scores of Q queries at sixteen keys.
template <int Q>
inline void score_keys(const AttendTile& tile, const AttendQueries& queries, int group, const float* mass,
                       float (*scores)[kTileRows]) {
  const std::byte* first = tile.keys + group * tile.key_stride;
  // A line of values for each pair of dimensions: as many as these rows have.
  const std::byte* ahead = tile.values + group * tile.value_stride;
  const int pairs = queries.head_dim / 2;
  Lanes sum[Q][1];
  for (auto& one : sum) one[0] = Lanes{};
  for (int d = 0; d < queries.head_dim; d += 2 * kLanes) {
    Pairs rows[kLanes];
    KVTIDE_UNROLL(16)
    for (int i = 0; i < kLanes; ++i) {
      const F16Row key{first + i * tile.key_stride};
      rows[i] = join_pairs(key.at(d, d + kLanes), key.at(d + kLanes, d + 2 * kLanes));
    }
    transpose(rows);
    const std::uint32_t* query = queries.pairs + d / 2;
    KVTIDE_UNROLL(16)
    for (int p = 0; p < kLanes; ++p) {
      __builtin_prefetch(ahead + (d / 2 + p) * 64, 0, 2);
      const Pairs row[1] = {rows[p]};
      add_products(sum, query + p, pairs * kPairWords, row);
    }
  }
  for (int i = 0; i < Q; ++i)
    store(scores[i] + group, fma(sum[i][0], set1(queries.scale), load(mass + group)));
}

// out = out * keep + take * (values weighed by p) for Q queries and V vectors from dimension d on.
template <int Q, int V>
inline void mix_rows(const AttendTile& tile, const AttendQueries& queries, int d,
                     const std::uint32_t (*p)[kWeightWords], const float* keep, const float* take,
                     float* out) {
  Lanes sum[Q][V];
  for (auto& row : sum)
    for (Lanes& one : row) one = Lanes{};
  // The next tile's keys come in evenly over all calls: an even share for each pair of rows and each vector.
  const std::int64_t share = V * kLanes * kTileRows * tile.key_stride / (queries.head_dim * (kTileRows / 2));
  const std::byte* ahead =
      tile.keys + kTileRows * tile.key_stride + d / (V * kLanes) * (kTileRows / 2) * share;
  for (int pair = 0; pair < kTileRows / 2; ++pair) {
    const std::byte* row = tile.values + 2 * pair * tile.value_stride;
    fetch(ahead + pair * share, share);
    Pairs values[V];
    for (int v = 0; v < V; ++v) {
      const int from = d + v * kLanes;
      values[v] = zip_pairs(F16Row{row}.at(from, from + kLanes),
                            F16Row{row + tile.value_stride}.at(from, from + kLanes));
    }
    add_products(sum, p[0] + pair, kWeightWords, values);
  }
  add_mixed(sum, keep, take, out + d, queries.head_dim);
}

template <int Q>
inline void fold_few_pairs(const AttendTile& tile, const AttendQueries& queries, const AttendPartials& into) {
  constexpr int kVectors = Q <= 5 ? kPairVectors : (kPairVectors + 1) / 2;  // with their sums they stay in registers
  alignas(64) float mass[kTileRows];
  TileWeights<kLanes> weights;
  read_mass(tile, mass);
  for (int group = 0; group < kTileRows; group += kLanes) {
    if constexpr (kPairWords == 2)
      if (score_halves<Q>(tile, queries, group, mass, weights.scores)) continue;
    score_keys<Q>(tile, queries, group, mass, weights.scores);
  }
  weights.join(queries, into, [&](float* max, float* sum) {
    soften_pairs<kTileRows / kLanes>(weights.scores, Q, 0, weights.p, max, sum);
  });
  each_vector<kVectors>(0, queries.head_dim / kLanes, [&]<int V>(int vector) {
    const int d = vector * kLanes;
    if constexpr (kPairWords == 2)
      if (mix_halves<Q, V>(tile, queries, d, weights.p, weights.keep, weights.take, into.out)) return;
    mix_rows<Q, V>(tile, queries, d, weights.p, weights.keep, weights.take, into.out);
  });
}

}  // namespace
}  // namespace kvtide
