// attend_few_halves.inl: how attend_few.inl meets rows in tables that multiply pairs in two steps (kPairWords = 2). Keys are transposed as
// they lie, as words of sixteen bits. Numbers become floats and are rounded right before the steps, so no pair is joined and
// taken apart again. The order of the arithmetic is that of attend_pairs.inl, number by number. Included by
// attend_packed.inl.
//
// Loops over queries and vectors are written out: g++ 12 keeps sums in memory otherwise.
namespace kvtide {
namespace {

// An f16 number rounded to the eight binary digits of bf16, ties to even. A float has 24 digits: of 65537 x they are 65536 x
// and, below it, x rounded to eight. Taking 65536 x away, which is exact, leaves these. An infinite x gives NaN.
inline Lanes round_half(Lanes x) { return fma(x, set1(-0x1p16f), mul(x, set1(0x1.0001p16f))); }

// Words of Q queries, or of their weights, as pack_queries and soften_pairs leave them.
template <int Q>
struct EachQuery {
  const std::uint32_t* words[Q];
  EachQuery(const std::uint32_t* first, int stride) {
    each<Q>([&](auto i) { words[i] = first + i * stride; });
  }
};

template <int Q, int V>
struct Sums {
  Lanes of[Q][V];
  Sums() {
    each<Q>([&](auto i) { each<V>([&](auto v) { of[i][v] = set1(0.0f); }); });
  }
  // Adds a float of each query times row(v), V vectors of f16 numbers.
  template <class Row>
  void add(const EachQuery<Q>& queries, int word, Row row) {
    Lanes rows[V];
    each<V>([&](auto v) { rows[v] = round_half(row(v)); });
    each<Q>([&](auto i) {
      const Lanes one = set1(__builtin_bit_cast(float, queries.words[i][word]));
      each<V>([&](auto v) { of[i][v] = fma(one, rows[v], of[i][v]); });
    });
  }
  // Whether some sum is infinite or not a number, as all are that met an infinite number.
  bool infinite() const {
    Lanes zero = set1(0.0f);
    each<Q>([&](auto i) { each<V>([&](auto v) { zero = fma(of[i][v], set1(0.0f), zero); }); });
    return reduce_add(zero) != 0.0f;
  }
};

// score_keys; false, and no scores, where a number is infinite.
template <int Q>
inline bool score_halves(const AttendTile& tile, const AttendQueries& queries, int group, const float* mass,
                         float (*scores)[kTileRows]) {
  const std::byte* first = tile.keys + group * tile.key_stride;
  // A line of values for each pair of dimensions: as many as these rows have.
  const std::byte* ahead = tile.values + group * tile.value_stride;
  const int half = queries.head_dim / 2;
  const EachQuery<Q> all(queries.pairs, queries.head_dim);
  Sums<Q, 1> sum;
  for (int d = 0; d < queries.head_dim; d += 2 * kLanes) {
    HalfWords keys;
    transpose(first + 2 * d, tile.key_stride, keys);
    asm("" : "+m"(keys));  // else g++ 12 takes words out of registers instead of loading them
    KVTIDE_UNROLL(16)
    for (int p = 0; p < kLanes; ++p) {
      __builtin_prefetch(ahead + (d / 2 + p) * 64, 0, 2);
      sum.add(all, half + d / 2 + p, [&](int) { return load(keys, 2 * p + 1); });
      sum.add(all, d / 2 + p, [&](int) { return load(keys, 2 * p); });
    }
  }
  if (sum.infinite()) return false;
  each<Q>([&](auto i) {
    store(scores[i] + group, fma(sum.of[i][0], set1(queries.scale), load(mass + group)));
  });
  return true;
}

// mix_rows; false, and `out` as it was, where a number is infinite.
template <int Q, int V>
inline bool mix_halves(const AttendTile& tile, const AttendQueries& queries, int d,
                       const std::uint32_t (*p)[kWeightWords], const float* keep, const float* take,
                       float* out) {
  // The next tile's keys come in evenly: as many lines as these dimensions of its rows have.
  const std::byte* ahead = tile.keys + kTileRows * tile.key_stride + d / kLanes * (kTileRows / 2) * 64;
  const EachQuery<Q> all(p[0], kWeightWords);
  Sums<Q, V> sum;
  for (int pair = 0; pair < kTileRows / 2; ++pair) {
    const auto row = [&](int place) {
      const std::byte* halves = tile.values + place * tile.value_stride;
      return [=](int v) { return load(reinterpret_cast<const std::uint16_t*>(halves) + d + v * kLanes); };
    };
    // Not written out: g++ 12 leaves a function out that does nothing but this.
    for (int v = 0; v < V; ++v) __builtin_prefetch(ahead + (pair * V + v) * 64, 0, 2);
    sum.add(all, kTileRows / 2 + pair, row(2 * pair + 1));
    sum.add(all, pair, row(2 * pair));
  }
  if (sum.infinite()) return false;
  add_mixed(sum.of, keep, take, out + d, queries.head_dim);
  return true;
}

}  // namespace
}  // namespace kvtide
