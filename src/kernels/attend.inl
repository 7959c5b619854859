// attend.inl: the body of attend_kernel.h on Lanes; included once by each attend.<isa>.cpp.
//
// Order of the arithmetic (docs/architecture.md, idea 4), the same for every instruction set and every
// caller:
//   score  sixteen chains over the head dimension, summed in the order of reduce_add; times scale, plus log
//          mass
//   tile   max over visible rows; p = e^(score - max); sum of p in sixteen chains; out = sum of p_j v_j, j
//          ascending
//   merge  both sides scaled to the larger max and added
#include "kernels/exp.inl"
#include "kernels/unroll.h"

#include "tensor/blocks.h"

namespace kvtide {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Sixteen elements of a row from element d on (a multiple of 16). Elements beyond head_dim are zeros.
struct F16Row {
  const std::byte* bytes;
  Lanes at(int d, int head_dim) const {
    return load_padded(reinterpret_cast<const std::uint16_t*>(bytes), d, head_dim);
  }
  template <class T>
  static Lanes load_padded(const T* row, int d, int head_dim) {
    if (d + kLanes <= head_dim) return load(row + d);
    T tail[kLanes] = {};
    for (int i = 0; d + i < head_dim; ++i) tail[i] = row[d + i];
    return load(tail);
  }
};
struct F32Row {
  const std::byte* bytes;
  Lanes at(int d, int head_dim) const {
    return F16Row::load_padded(reinterpret_cast<const float*>(bytes), d, head_dim);
  }
};
struct Q8Row {  // blocks of 32: value = d * q; head_dim is a multiple of 32
  const std::byte* bytes;
  Lanes at(int d, int) const {
    const auto* block = reinterpret_cast<const BlockQ8_0*>(bytes) + d / 32;
    return mul(load(block->qs + d % 32), set1(from_half(block->d)));
  }
};
struct Q4Row {  // blocks of 32: value = d * (nibble - 8), the low nibbles first; head_dim is a multiple of 32
  const std::byte* bytes;
  Lanes at(int d, int) const {
    const auto* block = reinterpret_cast<const BlockQ4_0*>(bytes) + d / 32;
    return mul(load_nibbles(block->qs, d % 32 / 4), set1(from_half(block->d)));
  }
};

// body<Row>() for the reader of rows of a type; of f32 rows that is F32.
template <class F32 = F32Row, class Body>
inline void with_row(DType type, Body body) {
  if (type == DType::f16)
    body.template operator()<F16Row>();
  else if (type == DType::q8_0)
    body.template operator()<Q8Row>();
  else if (type == DType::q4_0)
    body.template operator()<Q4Row>();
  else
    body.template operator()<F32>();
}

template <class Row>
inline void load_row(Row row, const AttendQueries& queries, float* out) {
  for (int d = 0; d < queries.padded_dim; d += kLanes) store(out + d, row.at(d, queries.head_dim));
}

inline void load_key(const AttendTile& tile, const AttendQueries& queries, int place, float* out) {
  const std::byte* row = tile.keys + (place - tile.begin) * tile.key_stride;
  with_row(tile.key_type, [&]<class Row>() { load_row(Row{row}, queries, out); });
}

// Turns pairs (i, i + pairs) of one key.
inline void turn(float* key, const float* rotation, int pairs) {
  const float *cosine = rotation, *sine = rotation + pairs;
  int i = 0;
  for (; i + kLanes <= pairs; i += kLanes) {
    const Lanes a = load(key + i), b = load(key + pairs + i), c = load(cosine + i), s = load(sine + i);
    store(key + i, sub(mul(a, c), mul(b, s)));
    store(key + pairs + i, add(mul(b, c), mul(a, s)));
  }
  for (; i < pairs; ++i) {
    const float a = key[i], b = key[pairs + i];
    key[i] = a * cosine[i] - b * sine[i];
    key[pairs + i] = b * cosine[i] + a * sine[i];
  }
}

// Whether every query sees all 64 places, as is usual far behind the chunk.
inline bool all_seen(const AttendQueries& queries) {
  int missing = 0;
  for (int i = 0; i < queries.count; ++i) missing |= queries.lo[i] | (queries.hi[i] ^ kTileRows);
  return missing == 0;
}

// Minus infinity at those of places [from, to) that a query does not see.
inline void hide_unseen(const AttendQueries& queries, int from, int to, float (*scores)[kTileRows]) {
  for (int i = 0; i < queries.count; ++i) {
    for (int place = from; place < queries.lo[i]; ++place) scores[i][place] = kMinusInfinity;
    for (int place = queries.hi[i]; place < to; ++place) scores[i][place] = kMinusInfinity;
  }
}

// scores[i][place] for all present places, in groups of sixteen; minus infinity where a query does not see
// the row.
void score_tile(const AttendTile& tile, const AttendQueries& queries, float (*scores)[kTileRows]) {
  alignas(64) float keys[kLanes * kMaxHeadDim];
  const int dim = queries.padded_dim;
  for (int group = tile.begin & ~(kLanes - 1); group < tile.end; group += kLanes) {
    alignas(64) float mass[kLanes] = {};
    for (int i = 0; i < kLanes; ++i) {
      const int place = group + i;
      if (place >= tile.begin && place < tile.end) {
        load_key(tile, queries, place, keys + i * dim);
        if (tile.rotation != nullptr) turn(keys + i * dim, tile.rotation, tile.rotation_pairs);
        mass[i] = tile.mass + (tile.log_mass != nullptr ? tile.log_mass[place - tile.begin] : 0.0f);
      } else {
        for (int d = 0; d < dim; d += kLanes) store(keys + i * dim + d, set1(0.0f));
      }
    }
    const Lanes scale = set1(queries.scale);
    for (int i = 0; i < queries.count; ++i)
      store(scores[i] + group, fma(dot16(queries.q + i * dim, keys, dim, dim), scale, load(mass)));
  }
  hide_unseen(queries, 0, kTileRows, scores);
}

// Turns scores into probabilities in place; gives the tile's max and sum.
inline void soften(float* scores, float* max_out, float* sum_out) {
  Lanes top = load(scores);
  for (int place = kLanes; place < kTileRows; place += kLanes) top = max(load(scores + place), top);
  const float highest = reduce_max(top);
  Lanes sum = set1(0.0f);
  for (int place = 0; place < kTileRows; place += kLanes) {
    const Lanes p = exp(sub(load(scores + place), set1(highest)));
    store(scores + place, p);
    sum = add(sum, p);
  }
  *max_out = highest;
  *sum_out = reduce_add(sum);
}

// Factors that bring two partials to their common max, sixteen pairs of them; gives that max.
inline Lanes join(Lanes into_max, Lanes from_max, Lanes* into_factor, Lanes* from_factor) {
  const Lanes highest = select_less(into_max, from_max, from_max, into_max);
  *into_factor = exp(sub(into_max, highest));
  *from_factor = exp(sub(from_max, highest));
  return highest;
}

// Joins the tile's max and sum of every query to its running ones; gives the factors of both outputs. A query that sees
// nothing here keeps its partial, bit for bit; with `all` there is none.
inline void join_tile(const AttendQueries& queries, bool all, const float* tile_max, const float* tile_sum,
                      const AttendPartials& into, float* keep, float* take) {
  for (int first = 0; first < queries.count; first += kLanes) {
    const int count = queries.count - first < kLanes ? queries.count - first : kLanes;
    const bool in_place = all && count == kLanes;
    alignas(64) float copies[2][kLanes];
    for (int i = 0; i < kLanes && !in_place; ++i) {
      copies[0][i] = i < count ? into.max[first + i] : 0.0f;
      copies[1][i] = i < count ? into.sum[first + i] : 0.0f;
    }
    float* max = in_place ? into.max + first : copies[0];
    float* sum = in_place ? into.sum + first : copies[1];
    Lanes kept, taken;
    store(max, join(load(max), load(tile_max + first), &kept, &taken));
    store(sum, fma(load(tile_sum + first), taken, mul(load(sum), kept)));
    store(keep + first, kept);
    store(take + first, taken);
    if (in_place) continue;
    for (int i = first; i < first + count; ++i) {
      const bool seen = queries.lo[i] < queries.hi[i];
      into.max[i] = seen ? max[i - first] : into.max[i];
      into.sum[i] = seen ? sum[i - first] : into.sum[i];
      keep[i] = seen ? keep[i] : 1.0f;
      take[i] = seen ? take[i] : 0.0f;
    }
  }
}

// Sums of whole numbers have a to_lanes that rounds.
inline Lanes to_lanes(Lanes a) { return a; }

// out = out * keep[i] + sum * take[i] for Q queries, whose outputs are `stride` apart, and V vectors.
template <class Sum, int Q, int V>
inline void add_mixed(const Sum (&sum)[Q][V], const float* keep, const float* take, float* out, int stride) {
  for (int i = 0; i < Q; ++i)
    for (int v = 0; v < V; ++v) {
      float* target = out + i * stride + v * kLanes;
      store(target, fma(to_lanes(sum[i][v]), set1(take[i]), mul(load(target), set1(keep[i]))));
    }
}

// out = out * keep[i] + (sum of p_j v_j) * take[i] for Q queries and V vectors of one slice of the head
// dimension.
template <class Row, int Q, int V>
inline void mix_slice(const AttendTile& tile, int first, int last, const float (*p)[kTileRows],
                      const float* keep, const float* take, float* out, int stride, int d, int head_dim) {
  Lanes sum[Q][V];
  for (int i = 0; i < Q; ++i)
    for (int v = 0; v < V; ++v) sum[i][v] = set1(0.0f);
  for (int place = first; place < last; ++place) {
    const Row row{tile.values + (place - tile.begin) * tile.value_stride};
    Lanes value[V];
    for (int v = 0; v < V; ++v) value[v] = row.at(d + v * kLanes, head_dim);
    for (int i = 0; i < Q; ++i) {
      const Lanes weight = set1(p[i][place]);
      for (int v = 0; v < V; ++v) sum[i][v] = fma(weight, value[v], sum[i][v]);
    }
  }
  add_mixed(sum, keep, take, out + d, stride);
}

template <class Row, int Q>
inline void mix_queries(const AttendTile& tile, int first, int last, const float (*p)[kTileRows],
                        const float* keep, const float* take, float* out, const AttendQueries& queries) {
  const int dim = queries.padded_dim;
  int d = 0;
  for (; d + kMixVectors * kLanes <= dim; d += kMixVectors * kLanes)
    mix_slice<Row, Q, kMixVectors>(tile, first, last, p, keep, take, out, dim, d, queries.head_dim);
  for (; d < dim; d += kLanes)
    mix_slice<Row, Q, 1>(tile, first, last, p, keep, take, out, dim, d, queries.head_dim);
}

template <class Row>
inline void mix(const AttendTile& tile, const float (*p)[kTileRows], const float* keep, const float* take,
                float* out, const AttendQueries& queries) {
  int i = 0;
  for (; i + kMixQueries <= queries.count; i += kMixQueries)
    mix_queries<Row, kMixQueries>(tile, tile.begin, tile.end, p + i, keep + i, take + i,
                                  out + i * queries.padded_dim, queries);
  for (; i < queries.count; ++i)
    mix_queries<Row, 1>(tile, tile.begin, tile.end, p + i, keep + i, take + i, out + i * queries.padded_dim,
                        queries);
}

void fold_tile(const AttendTile& tile, const AttendQueries& queries, const AttendPartials& into) noexcept {
  alignas(64) float scores[kQueryBlock][kTileRows];
  alignas(64) float keep[kQueryBlock], take[kQueryBlock], max[kQueryBlock] = {}, sum[kQueryBlock] = {};
  score_tile(tile, queries, scores);
  for (int i = 0; i < queries.count; ++i) {
    if (queries.lo[i] < queries.hi[i]) {
      soften(scores[i], &max[i], &sum[i]);
      continue;
    }
    for (float& weight : scores[i]) weight = 0.0f;
  }
  join_tile(queries, false, max, sum, into, keep, take);
  with_row(tile.value_type, [&]<class Row>() { mix<Row>(tile, scores, keep, take, into.out, queries); });
}

void merge(int count, int padded_dim, const AttendPartials& from, const AttendPartials& into) noexcept {
  for (int i = 0; i < count; ++i) {
    if (from.max[i] == kMinusInfinity) continue;
    Lanes keep, take;
    alignas(64) float highest[kLanes], factors[2][kLanes];
    store(highest, join(set1(into.max[i]), set1(from.max[i]), &keep, &take));
    store(factors[0], keep);
    store(factors[1], take);
    into.max[i] = highest[0];
    into.sum[i] = __builtin_fmaf(from.sum[i], factors[1][0], into.sum[i] * factors[0][0]);
    for (int d = 0; d < padded_dim; d += kLanes) {
      float* target = into.out + i * padded_dim + d;
      store(target, fma(load(from.out + i * padded_dim + d), take, mul(load(target), keep)));
    }
  }
}

}  // namespace
}  // namespace kvtide
