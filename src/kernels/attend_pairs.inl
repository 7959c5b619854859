// attend_pairs.inl: attend_kernel.h with queries, keys, values and softmax weights rounded to bf16; sums stay
// f32. Included once by each attend.<isa>.cpp after attend.inl.
//
// Order of the arithmetic, the same for every instruction set and every caller:
//   score: one chain per row over pairs of dimensions, ascending, of a pair the second first (pair_products.inl);
//   then times scale, plus log mass;
//   tile: as in attend.inl, with weights by exp_of_weight that are rounded before they are summed, so that they still
//   sum to one: of neighbours first the two, then these sums in sixteen chains;
//   values: one chain per dimension over pairs of rows, ascending; a row that is missing counts as zeros.
// Numbers below 2^-60 count as zero, so that no product of two falls below what processors multiply alike.
#include "kernels/pair_products.inl"

namespace kvtide {
namespace {

constexpr int kMaxPairs = kMaxHeadDim / 2;
constexpr int kWeightWords = kTileRows / 2 * kPairWords;  // of one query's weights

inline Lanes drop_tiny(Lanes a) { return select_less(abs(a), set1(0x1p-60f), set1(0.0f), a); }

// Sixteen keys, of which [begin, end) are there, as [pair][key].
template <class Load>
inline void pack_keys(const Load& key, int begin, int end, int padded_dim, std::uint32_t* out) {
  for (int d = 0; d < padded_dim; d += 2 * kLanes) {
    Pairs rows[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const bool there = i >= begin && i < end;
      const Lanes low = there ? key(i, d) : set1(0.0f);
      rows[i] = join_pairs(low, there && d + kLanes < padded_dim ? key(i, d + kLanes) : set1(0.0f));
    }
    transpose(rows);
    const int pairs = padded_dim - d < 2 * kLanes ? kLanes / 2 : kLanes;
    for (int p = 0; p < pairs; ++p) store(out + (d / 2 + p) * kTileRows, rows[p]);
  }
}

// The same for sixteen keys that are all there, in whole vectors: nothing to ask on the way, and all stays in registers.
template <class Load>
inline void pack_whole_keys(const Load& key, int padded_dim, std::uint32_t* out) {
  for (int d = 0; d < padded_dim; d += 2 * kLanes) {
    Pairs rows[kLanes];
    KVTIDE_UNROLL(16)
    for (int i = 0; i < kLanes; ++i) rows[i] = join_pairs(key(i, d), key(i, d + kLanes));
    transpose(rows);
    KVTIDE_UNROLL(16)
    for (int p = 0; p < kLanes; ++p) store(out + (d / 2 + p) * kTileRows, rows[p]);
  }
}

// Rows lie in small pages, where processors stop fetching ahead by themselves: decoding would wait for memory
// at every row. While keys are packed the tile's values come in, while values are packed the next tile's
// keys. Into the second cache: the first has few places for what is on its way, and loads of now wait for one.
inline void fetch(const std::byte* bytes, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 64) __builtin_prefetch(bytes + i, 0, 2);
}

// Tile and queries as copies: what is stored could otherwise have changed them.
template <class Row>
inline void pack_key_rows(const AttendTile tile, const AttendQueries queries, std::uint32_t* out) {
  for (int group = tile.begin & ~(kLanes - 1); group < tile.end; group += kLanes) {
    const int begin = tile.begin > group ? tile.begin - group : 0;
    const int end = tile.end - group < kLanes ? tile.end - group : kLanes;
    const std::byte* first = tile.keys + (group - tile.begin) * tile.key_stride;
    fetch(tile.values + (group + begin - tile.begin) * tile.value_stride, (end - begin) * tile.value_stride);
    if (tile.rotation == nullptr) {
      const int dim = queries.head_dim;
      if (begin == 0 && end == kLanes && dim % (2 * kLanes) == 0)
        pack_whole_keys([&](int i, int d) { return Row{first + i * tile.key_stride}.at(d, d + kLanes); }, dim,
                        out + group);
      else
        pack_keys([&](int i, int d) { return Row{first + i * tile.key_stride}.at(d, dim); }, begin, end,
                  queries.padded_dim, out + group);
      continue;
    }
    alignas(64) float turned[kLanes * kMaxHeadDim];
    const int dim = queries.padded_dim;
    for (int i = begin; i < end; ++i) {
      load_row(Row{first + i * tile.key_stride}, queries, turned + i * dim);
      turn(turned + i * dim, tile.rotation, tile.rotation_pairs);
    }
    pack_keys([&](int i, int d) { return drop_tiny(load(turned + i * dim + d)); }, begin, end, dim,
              out + group);
  }
}

// Values of rows [begin, end) as [pair of rows][dimension], from the pair of row `begin` on.
template <class Row>
inline void pack_value_rows(const AttendTile tile, const AttendQueries queries, std::uint32_t* out) {
  for (int place = tile.begin & ~1; place < tile.end; place += 2) {
    fetch(tile.keys + (place + kTileRows - tile.begin) * tile.key_stride, 2 * tile.key_stride);
    if (place >= tile.begin && place + 1 < tile.end && queries.head_dim == queries.padded_dim) {
      const std::byte* row = tile.values + (place - tile.begin) * tile.value_stride;
      for (int d = 0; d < queries.head_dim; d += kLanes)
        store(out + place / 2 * queries.padded_dim + d,
              zip_pairs(Row{row}.at(d, d + kLanes), Row{row + tile.value_stride}.at(d, d + kLanes)));
      continue;
    }
    for (int d = 0; d < queries.padded_dim; d += kLanes) {
      const auto value = [&](int row) {
        return row < tile.begin || row >= tile.end
                   ? set1(0.0f)
                   : Row{tile.values + (row - tile.begin) * tile.value_stride}.at(d, queries.head_dim);
      };
      store(out + place / 2 * queries.padded_dim + d, zip_pairs(value(place), value(place + 1)));
    }
  }
}

// F32 rows may hold anything.
struct RoundedF32Row {
  const std::byte* bytes;
  Lanes at(int d, int head_dim) const { return drop_tiny(F32Row{bytes}.at(d, head_dim)); }
};

// Zeros where there is no row.
inline void read_mass(const AttendTile& tile, float (&mass)[kTileRows]) {
  for (float& one : mass) one = 0.0f;
  if (tile.log_mass != nullptr)
    for (int place = tile.begin; place < tile.end; ++place)
      mass[place] = tile.mass + tile.log_mass[place - tile.begin];
  else if (tile.mass != 0.0f)
    for (int place = tile.begin; place < tile.end; ++place) mass[place] = tile.mass;
}

// Scores of the tile's rows, whose keys lie in `packed`.
inline void score_pairs(const AttendTile& tile, const AttendQueries& queries, const std::uint32_t* packed,
                        const float* mass, float (*scores)[kTileRows]) {
  const int pairs = queries.padded_dim / 2, words = pairs * kPairWords;
  const Lanes scale = set1(queries.scale);
  each_vector(tile.begin / kLanes, (tile.end + kLanes - 1) / kLanes, [&]<int V>(int group) {
    each_query<kPairQueries>(queries.count, [&]<int Q>(int first) {
      Lanes sum[Q][V];
      multiply<Q, V>(queries.pairs + first * words, words, packed + group * kLanes, kTileRows, pairs, sum);
      for (int i = 0; i < Q; ++i)
        for (int v = 0; v < V; ++v) {
          const int place = (group + v) * kLanes;
          store(scores[first + i] + place, fma(sum[i][v], scale, load(mass + place)));
        }
    });
  });
}

// rows: [count][padded_dim]; pairs: [count][padded_dim / 2 * kPairWords].
void pack_queries(int count, int padded_dim, const float* rows, std::uint32_t* pairs) noexcept {
  const int half = padded_dim / 2;
  for (int i = 0; i < count; ++i)
    for (int d = 0; d < padded_dim; d += 2 * kLanes) {
      const float* source = rows + i * padded_dim + d;
      const bool whole = d + kLanes < padded_dim;
      alignas(64) std::uint32_t out[kPairWords][kLanes];
      store_pairs(out[0], kLanes,
                  join_pairs(drop_tiny(load(source)), whole ? drop_tiny(load(source + kLanes)) : set1(0.0f)));
      for (int word = 0; word < kPairWords; ++word)
        __builtin_memcpy(pairs + (i * kPairWords + word) * half + d / 2, out[word],
                         static_cast<std::size_t>(whole ? kLanes : kLanes / 2) * sizeof **out);
    }
}

// The highest of the scores of `count` queries, at most sixteen, at Vectors * 16 places from `from` on: lanes of all
// queries come together at once. A lane behind `count` holds zero.
template <int Vectors>
inline Lanes highest_scores(const float (*scores)[kTileRows], int count, int from) {
  Lanes top[kLanes];
  for (Lanes& none : top) none = set1(0.0f);
  for (int i = 0; i < count; ++i) {
    const float* score = scores[i] + from;
    top[i] = load(score);
    for (int v = 1; v < Vectors; ++v) top[i] = max(load(score + v * kLanes), top[i]);
  }
  return reduce_max16(top);
}

// Turns these scores into rounded probabilities, packed by pairs of rows.
template <int Vectors>
inline void soften_pairs(const float (*scores)[kTileRows], int count, int from,
                         std::uint32_t (*p)[kWeightWords], float* max_out, float* sum_out) {
  Lanes sum[kLanes];
  for (Lanes& none : sum) none = set1(0.0f);
  alignas(64) float shift[kLanes];
  const Lanes highest = highest_scores<Vectors>(scores, count, from);
  store(max_out, highest);
  store(shift, minus_log2(highest));
  for (int i = 0; i < count; ++i) {
    const Lanes down = set1(shift[i]);
    for (int v = 0; v < Vectors; v += 2) {
      const float* score = scores[i] + from + v * kLanes;
      const Pairs pairs =
          join_pairs(exp_of_weight(load(score), down), exp_of_weight(load(score + kLanes), down));
      sum[i] = add(sum[i], add(first_of_pairs(pairs), second_of_pairs(pairs)));
      store_pairs(p[i] + (from + v * kLanes) / 2, kTileRows / 2, pairs);
    }
  }
  store(sum_out, reduce_add16(sum));
}

// out = out * keep + take * (values weighed by p).
inline void mix_pairs(const AttendTile& tile, const AttendQueries& queries,
                      const std::uint32_t (*p)[kWeightWords], const float* keep, const float* take,
                      const std::uint32_t* packed, float* out) {
  const int dim = queries.padded_dim, first_pair = tile.begin / 2, pairs = (tile.end + 1) / 2 - first_pair;
  each_vector(0, dim / kLanes, [&]<int V>(int vector) {
    each_query<kPairQueries>(queries.count, [&]<int Q>(int first) {
      Lanes sum[Q][V];
      multiply<Q, V>(p[first] + first_pair, kWeightWords, packed + first_pair * dim + vector * kLanes, dim,
                     pairs, sum);
      add_mixed(sum, keep + first, take + first, out + first * dim + vector * kLanes, dim);
    });
  });
}

// What at most `Most` queries make of a tile's rows.
template <int Most>
struct TileWeights {
  alignas(64) float scores[Most][kTileRows];        // where values are met in whole numbers, the weights
  alignas(64) std::uint32_t p[Most][kWeightWords];  // the weights as pairs, elsewhere
  alignas(64) float keep[Most], take[Most];

  // soften(max, sum) turns the scores of rows that are seen into weights; these are joined to what came before.
  template <class Soften>
  void join(const AttendQueries& queries, const AttendPartials& into, Soften soften) {
    alignas(64) float max[Most], sum[Most];
    const bool all = all_seen(queries);
    if (!all) hide_unseen(queries, 0, kTileRows, scores);
    soften(max, sum);
    for (int i = 0; i < queries.count && !all; ++i) {
      if (queries.lo[i] < queries.hi[i]) continue;
      for (std::uint32_t& pair : p[i]) pair = 0;  // sees nothing here
      for (float& weight : scores[i]) weight = 0.0f;
    }
    join_tile(queries, all, max, sum, into, keep, take);
  }
};

constexpr std::int64_t kProbeFlop = kProbeChains * kLanes * 4;

float probe_pairs(std::int64_t rounds) noexcept {
  alignas(64) std::uint32_t halves[kPairWords * kLanes];
  store_pairs(halves, kLanes, join_pairs(set1(0.5f), set1(0.5f)));
  Pairs pairs[kProbeChains];
  Lanes sum[1][kProbeChains];
  for (int i = 0; i < kProbeChains; ++i) {
    pairs[i] = join_pairs(set1(0.001f), set1(0.001f));
    sum[0][i] = set1(1.0f + static_cast<float>(i));
  }
  for (std::int64_t round = 0; round < rounds; ++round) add_products(sum, halves, kPairWords * kLanes, pairs);
  for (int i = 1; i < kProbeChains; ++i) sum[0][0] = add(sum[0][0], sum[0][i]);
  return reduce_add(sum[0][0]);
}

}  // namespace
}  // namespace kvtide
