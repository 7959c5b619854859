// attend_ints.inl: attention over q8_0 and q4_0 rows as they lie, in whole numbers. Included by attend_packed.inl.
//
// Order of the arithmetic, the same for every instruction set and every caller:
//   queries: 32 dimensions share a step, their largest / 32,767, and are rounded to multiples of it;
//   score: per 32 dimensions, ascending, the exact sum of products, rounded once to f32, times the product of
//   both steps, added by one fma; then times scale, plus log mass;
//   tile: as in attend.inl, with weights by exp_of_weight;
//   values: per 32 dimensions the weights, probability times the row's step, are rounded to multiples of the
//   tile's largest / 32,767; the exact sum of products, rounded once to f32, times that step.
// Sums are exact because they fit: 64 rows of at most 32,767 x 128 stay below 2^31. The sum of the weights is
// that of the f32 probabilities: rounding is to nearest and so has no side to lean to, and at the very worst
// 64 rows lose half a multiple each, 2^-10 of the largest.
// Steps below 2^-60 x 2^-15 count as zero, so that no inverse overflows; what is not finite makes a step NaN.
namespace kvtide {
namespace {

constexpr int kBlock = 32;  // elements of a q8_0 block
constexpr int kMaxBlocks = kMaxHeadDim / kBlock;
constexpr int kQueriesAtOnce = 48;  // a multiple of kLanes, and of every kPairQueries and kWordQueries
constexpr float kLargestWord = 32767.0f;

// The steps of numbers of which the largest are `largest`, and what they are multiplied by.
inline Lanes steps_of(const Lanes& largest, Lanes* inverse) {
  const Lanes zero = set1(0.0f), least = set1(0x1p-60f), infinite = set1(__builtin_inff());
  *inverse = select_less(largest, infinite,
                         select_less(largest, least, zero, div(set1(kLargestWord), largest)), zero);
  const Lanes step =
      select_less(largest, infinite, mul(largest, set1(1.0f / kLargestWord)), set1(__builtin_nanf("")));
  return select_less(largest, least, zero, step);
}

// rows: [count][dim]; words: [count][dim / 2] pairs of int16 in the order of pack_byte_keys; steps:
// [count][dim / 32].
void quantize_queries(int count, int dim, const float* rows, std::uint32_t* words, float* steps) noexcept {
  for (int block = 0; block < count * dim / kBlock; ++block) {
    const Lanes low = load(rows + block * kBlock), high = load(rows + block * kBlock + kLanes);
    alignas(64) float step[kLanes];
    Lanes inverse;
    store(step, steps_of(set1(reduce_max_bits(max_bits(abs(low), abs(high)))), &inverse));
    steps[block] = step[0];
    std::uint32_t whole[kBlock / 2];
    store_words(whole, mul(low, inverse));
    store_words(whole + kLanes / 2, mul(high, inverse));
    std::uint32_t* out = words + block * kBlock / 2;
    for (int i = 0; i < kBlock / 2; i += 2) {  // dimensions 0 and 1, 2 and 3
      out[i] = (whole[i] & 0xffffu) | whole[i + 1] << 16;
      out[i + 1] = whole[i] >> 16 | (whole[i + 1] & 0xffff0000u);
    }
  }
}

// Steps of rows as f16 bits, [block][place].
using Steps = std::uint16_t[kMaxBlocks][kTileRows];

inline Bytes bytes_of(const BlockQ8_0& block) { return load_bytes(block.qs); }
inline Bytes bytes_of(const BlockQ4_0& block) { return load_nibbles(block.qs); }
inline bool in_whole_numbers(DType type) { return type == DType::q8_0 || type == DType::q4_0; }
// body<Block>() for one of these types.
template <class Body>
inline auto with_block(DType type, Body body) {
  if (type == DType::q8_0) return body.template operator()<BlockQ8_0>();
  return body.template operator()<BlockQ4_0>();
}

// Rows first, first + stride, ... lie at the places [begin, end); elsewhere all steps are zero.
template <class Block>
constexpr Block kNoRow[kMaxBlocks] = {};
template <class Block>
inline const Block* row_at(const std::byte* first, std::int64_t stride, int begin, int end, int place) {
  if (place < begin || place >= end) return kNoRow<Block>;
  return reinterpret_cast<const Block*>(first + (place - begin) * stride);
}

// Keys as [pair of dimensions][place], where dimensions 0 and 2, 1 and 3 of every four make a pair.
template <class Block>
inline void pack_byte_keys(const AttendTile tile, int dim, std::uint32_t* out, Steps& steps) {
  for (int group = tile.begin & ~(kLanes - 1); group < tile.end; group += kLanes) {
    const int begin = tile.begin > group ? tile.begin : group;
    const int end = tile.end < group + kLanes ? tile.end : group + kLanes;
    fetch(tile.values + (begin - tile.begin) * tile.value_stride, (end - begin) * tile.value_stride);
    const Block* keys[kLanes];
    for (int i = 0; i < kLanes; ++i)
      keys[i] = row_at<Block>(tile.keys, tile.key_stride, tile.begin, tile.end, group + i);
    for (int block = 0; block < dim / kBlock; block += 2) {
      const int second = block + 1 < dim / kBlock ? 1 : 0;
      Pairs rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const Block* key = keys[i] + block;
        rows[i] = join_bytes(bytes_of(key[0]), bytes_of(key[second]));
        steps[block][group + i] = key->d;
        steps[block + second][group + i] = key[second].d;
      }
      transpose(rows);
      std::uint32_t* pairs = out + block * kBlock / 2 * kTileRows + group;
      for (int four = 0; four < (1 + second) * kLanes / 2; ++four) {
        store(pairs + 2 * four * kTileRows, even_bytes(rows[four]));
        store(pairs + (2 * four + 1) * kTileRows, odd_bytes(rows[four]));
      }
    }
  }
}

// Values of rows [begin, end) as [pair of rows][dimension], from the pair of row `begin` on; all places have
// steps.
template <class Block>
inline void pack_byte_values(const AttendTile tile, int dim, std::uint32_t* out, Steps& steps) {
  __builtin_memset(steps, 0, static_cast<std::size_t>(dim / kBlock) * sizeof *steps);
  for (int place = tile.begin & ~1; place < tile.end; place += 2) {
    fetch(tile.keys + (place + kTileRows - tile.begin) * tile.key_stride, 2 * tile.key_stride);
    const Block* a = row_at<Block>(tile.values, tile.value_stride, tile.begin, tile.end, place);
    const Block* b = row_at<Block>(tile.values, tile.value_stride, tile.begin, tile.end, place + 1);
    for (int block = 0; block < dim / kBlock; ++block) {
      steps[block][place] = a[block].d;
      steps[block][place + 1] = b[block].d;
      Pairs both[kBlock / kLanes];
      zip_bytes(bytes_of(a[block]), bytes_of(b[block]), both);
      for (int v = 0; v < kBlock / kLanes; ++v)
        store(out + place / 2 * dim + block * kBlock + v * kLanes, both[v]);
    }
  }
}

// Scores of the tile's rows, whose keys lie in `packed`.
inline void score_ints(const AttendTile& tile, const AttendQueries& queries, const std::uint32_t* packed,
                       const Steps& steps, const float* mass, float (*scores)[kTileRows]) {
  const int dim = queries.head_dim, blocks = dim / kBlock;
  const Lanes scale = set1(queries.scale);
  for (int block = 0; block < blocks; ++block)
    each_vector(tile.begin / kLanes, (tile.end + kLanes - 1) / kLanes, [&]<int V>(int vector) {
      Lanes step[V];
      for (int v = 0; v < V; ++v) step[v] = load(steps[block] + (vector + v) * kLanes);
      each_query<kWordQueries>(queries.count, [&]<int Q>(int first) {
        Ints sum[Q][V];
        multiply<Q, V>(queries.words + (first * dim + block * kBlock) / 2, dim / 2,
                       packed + block * kBlock / 2 * kTileRows + vector * kLanes, kTileRows, kBlock / 2, sum);
        for (int i = 0; i < Q; ++i)
          for (int v = 0; v < V; ++v) {
            const int place = (vector + v) * kLanes;
            float* target = scores[first + i] + place;
            const Lanes both = mul(set1(queries.steps[(first + i) * blocks + block]), step[v]);
            const Lanes so_far = block == 0 ? set1(0.0f) : load(target);
            const Lanes score = fma(to_lanes(sum[i][v]), both, so_far);
            store(target, block + 1 == blocks ? fma(score, scale, load(mass + place)) : score);
          }
      });
    });
}

// As soften_pairs, in place and not rounded.
inline void soften_ints(float (*scores)[kTileRows], int count, float* max_out, float* sum_out) {
  Lanes sum[kLanes];
  for (Lanes& none : sum) none = set1(0.0f);
  alignas(64) float shift[kLanes];
  const Lanes highest = highest_scores<kTileRows / kLanes>(scores, count, 0);
  store(max_out, highest);
  store(shift, minus_log2(highest));
  for (int i = 0; i < count; ++i)
    for (int place = 0; place < kTileRows; place += kLanes) {
      const Lanes p = exp_of_weight(load(scores[i] + place), set1(shift[i]));
      store(scores[i] + place, p);
      sum[i] = add(sum[i], p);
    }
  store(sum_out, reduce_add16(sum));
}

// Probabilities of sixteen rows times their steps. A row that is not seen weighs nothing, whatever its step is.
inline Lanes weigh(const float* p, Lanes step) {
  const Lanes zero = set1(0.0f), one = load(p);
  return select_less(zero, one, mul(one, step), zero);
}

// Weights of `count` queries, at most sixteen, in whole numbers, and factor[i]: the step of those of query i times
// take[i].
inline void weigh_queries(const float (*p)[kTileRows], int count, const float* take,
                          const std::uint16_t* steps, std::uint32_t (*out)[kTileRows / 2], float* factor) {
  constexpr int kVectors = kTileRows / kLanes;
  Lanes step[kVectors], largest[kLanes];
  for (int v = 0; v < kVectors; ++v) step[v] = load(steps + v * kLanes);
  for (Lanes& none : largest) none = set1(0.0f);
  for (int i = 0; i < count; ++i)
    for (int v = 0; v < kVectors; ++v)
      largest[i] = max_bits(largest[i], abs(weigh(p[i] + v * kLanes, step[v])));
  alignas(64) float inverse[kLanes];
  Lanes inverses;
  const Lanes taken = steps_of(reduce_max_bits16(largest), &inverses);
  store(inverse, inverses);
  store(factor, mul(taken, load(take)));
  for (int i = 0; i < count; ++i)
    for (int v = 0; v < kVectors; ++v)
      store_words(out[i] + v * kLanes / 2, mul(weigh(p[i] + v * kLanes, step[v]), set1(inverse[i])));
}

// out = out * keep + take * (values weighed by p).
inline void mix_ints(const AttendTile& tile, const AttendQueries& queries, const float (*p)[kTileRows],
                     const float* keep, const float* take, const std::uint32_t* packed, const Steps& steps,
                     float* out) {
  alignas(64) std::uint32_t weights[kQueriesAtOnce][kTileRows / 2];
  alignas(64) float factor[kQueriesAtOnce];
  const int dim = queries.head_dim, first_pair = tile.begin / 2, pairs = (tile.end + 1) / 2 - first_pair;
  for (int block = 0; block < dim / kBlock; ++block) {
    for (int i = 0; i < queries.count; i += kLanes)
      weigh_queries(p + i, queries.count - i < kLanes ? queries.count - i : kLanes, take + i, steps[block],
                    weights + i, factor + i);
    each_vector<kPairVectors == 1 ? 1 : kBlock / kLanes>(0, kBlock / kLanes, [&]<int V>(int vector) {
      const int d = block * kBlock + vector * kLanes;
      each_query<kWordQueries>(queries.count, [&]<int Q>(int first) {
        Ints sum[Q][V];
        multiply<Q, V>(weights[first] + first_pair, kTileRows / 2, packed + first_pair * dim + d, dim, pairs,
                       sum);
        add_mixed(sum, keep + first, factor + first, out + first * dim + d, dim);
      });
    });
  }
}

}  // namespace
}  // namespace kvtide
