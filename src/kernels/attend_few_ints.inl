// attend_few_ints.inl: attend_ints.inl for the few queries of a step that writes, as attend_few.inl is for pairs: q8_0
// and q4_0 rows go from memory straight into the products. Whole numbers add up alike in any order, so sums are split into
// chains that do not wait for each other. Included by attend_packed.inl.
namespace kvtide {
namespace {

// Read before they are needed: what a vector of steps is loaded from has long been stored then.
template <class Block>
inline void read_steps(const std::byte* rows, std::int64_t stride, int blocks, Steps& steps) {
  for (int place = 0; place < kTileRows; ++place) {
    const auto* row = reinterpret_cast<const Block*>(rows + place * stride);
    for (int block = 0; block < blocks; ++block) steps[block][place] = row[block].d;
  }
}

// Scores of Q queries at sixteen keys.
template <class Block, int Q>
inline void score_bytes(const AttendTile& tile, const AttendQueries& queries, int group, const Steps& steps,
                        const float* mass, float (*scores)[kTileRows]) {
  constexpr int kChains = Q <= 3 ? 2 : 1;
  const int dim = queries.head_dim, blocks = dim / kBlock;
  const std::byte* first = tile.keys + group * tile.key_stride;
  const std::int64_t share = kLanes * tile.value_stride / (dim / 4);
  const std::byte* ahead = tile.values + group * tile.value_stride;
  Lanes score[Q];
  for (Lanes& one : score) one = set1(0.0f);
  for (int block = 0; block < blocks; block += 2) {
    Pairs rows[kLanes];
    KVTIDE_UNROLL(16)
    for (int i = 0; i < kLanes; ++i) {
      const auto* key = reinterpret_cast<const Block*>(first + i * tile.key_stride) + block;
      rows[i] = join_bytes(bytes_of(key[0]), bytes_of(key[1]));
    }
    transpose(rows);
    KVTIDE_UNROLL(2)
    for (int half = 0; half < 2; ++half) {
      Ints sum[Q][kChains];
      for (auto& chains : sum)
        for (Ints& one : chains) one = Ints{};
      const std::uint32_t* query = queries.words + (block + half) * kBlock / 2;
      KVTIDE_UNROLL(8)
      for (int four = 0; four < kLanes / 2; ++four) {
        const Pairs row = rows[half * kLanes / 2 + four], even = even_bytes(row), odd = odd_bytes(row);
        __builtin_prefetch(ahead + (block * kBlock / 4 + half * kLanes / 2 + four) * share, 0, 2);
        for (int i = 0; i < Q; ++i) {
          const std::uint32_t* words = query + i * dim / 2 + 2 * four;
          sum[i][0] = dot_pairs(sum[i][0], words[0], even);
          sum[i][kChains - 1] = dot_pairs(sum[i][kChains - 1], words[1], odd);
        }
      }
      const Lanes step = load(steps[block + half] + group);
      for (int i = 0; i < Q; ++i) {
        const Lanes both = mul(set1(queries.steps[i * blocks + block + half]), step);
        const Ints all = kChains == 1 ? sum[i][0] : add(sum[i][0], sum[i][kChains - 1]);
        score[i] = fma(to_lanes(all), both, score[i]);
      }
    }
  }
  for (int i = 0; i < Q; ++i)
    store(scores[i] + group, fma(score[i], set1(queries.scale), load(mass + group)));
}

// out = out * keep + take * (values of one block of dimensions weighed by p).
template <class Block, int Q>
inline void mix_bytes(const AttendTile& tile, const AttendQueries& queries, int block,
                      const float (*p)[kTileRows], const float* keep, const float* take, const Steps& steps,
                      float* out) {
  constexpr int kVectors = kBlock / kLanes;
  alignas(64) std::uint32_t weights[Q][kTileRows / 2];
  alignas(64) float factor[kLanes];
  weigh_queries(p, Q, take, steps[block], weights, factor);
  Ints sum[Q][kVectors];
  for (auto& row : sum)
    for (Ints& one : row) one = Ints{};
  const std::int64_t share = kTileRows * tile.key_stride / (queries.head_dim / kBlock * (kTileRows / 2));
  const std::byte* ahead = tile.keys + kTileRows * tile.key_stride + block * (kTileRows / 2) * share;
  for (int pair = 0; pair < kTileRows / 2; ++pair) {
    const auto* row = reinterpret_cast<const Block*>(tile.values + 2 * pair * tile.value_stride) + block;
    const auto* next =
        reinterpret_cast<const Block*>(tile.values + (2 * pair + 1) * tile.value_stride) + block;
    fetch(ahead + pair * share, share);
    Pairs values[kVectors];
    zip_bytes(bytes_of(*row), bytes_of(*next), values);
    for (int i = 0; i < Q; ++i)
      for (int v = 0; v < kVectors; ++v) sum[i][v] = dot_pairs(sum[i][v], weights[i][pair], values[v]);
  }
  add_mixed(sum, keep, factor, out + block * kBlock, queries.head_dim);
}

template <class Block, int Q>
inline void fold_few_bytes(const AttendTile& tile, const AttendQueries& queries, const AttendPartials& into) {
  alignas(64) float mass[kTileRows];
  alignas(64) Steps steps;
  TileWeights<kLanes> weights;
  const int blocks = queries.head_dim / kBlock;
  read_mass(tile, mass);
  read_steps<Block>(tile.keys, tile.key_stride, blocks, steps);
  for (int group = 0; group < kTileRows; group += kLanes)
    score_bytes<Block, Q>(tile, queries, group, steps, mass, weights.scores);
  read_steps<Block>(tile.values, tile.value_stride, blocks, steps);
  weights.join(queries, into, [&](float* max, float* sum) { soften_ints(weights.scores, Q, max, sum); });
  for (int block = 0; block < blocks; ++block)
    mix_bytes<Block, Q>(tile, queries, block, weights.scores, weights.keep, weights.take, steps, into.out);
}

// Whether there are at most `Most` queries, which fold<count> has then met.
template <int Most, class Fold>
inline bool meet_few(const AttendQueries& queries, Fold fold) {
  if constexpr (Most > 0)
    if (queries.count <= Most) {
      rest_of_queries<Most>(0, queries.count, fold);
      return true;
    }
  return false;
}

// Whether a kernel for few queries has folded the tile into them.
inline bool fold_few(const AttendTile& tile, const AttendQueries& queries, const AttendPartials& into) {
  if (is_whole(tile, DType::f16) && queries.head_dim % (2 * kLanes) == 0)
    return meet_few<kFewPairQueries>(queries, [&]<int Q>(int) { fold_few_pairs<Q>(tile, queries, into); });
  if (in_whole_numbers(tile.key_type) && is_whole(tile, tile.key_type) &&
      queries.head_dim % (2 * kBlock) == 0)
    return with_block(tile.key_type, [&]<class Block>() {
      return meet_few<kFewByteQueries>(queries,
                                       [&]<int Q>(int) { fold_few_bytes<Block, Q>(tile, queries, into); });
    });
  return false;
}

}  // namespace
}  // namespace kvtide
