// attend_ints.inl: attention over q8_0 rows as they lie, in whole numbers, and the fold of a tile whose keys
// and values are each met in whole numbers or as bf16 pairs. Included once by each attend.<isa>.cpp after
// attend.inl.
//
// Order of the arithmetic, the same for every instruction set and every caller:
//   queries: 32 dimensions share a step, their largest / 32,767, and are rounded to multiples of it;
//   score: per 32 dimensions, ascending, the exact sum of products, rounded once to f32, times the product of
//   both steps, added by one fma; then times scale, plus log mass;
//   tile: as in attend.inl;
//   values: per 32 dimensions the weights, probability times the row's step, are rounded to multiples of the
//   tile's largest / 32,767; the exact sum of products, rounded once to f32, times that step.
// Sums are exact because they fit: 64 rows of at most 32,767 x 128 stay below 2^31. The sum of the weights is
// that of the f32 probabilities: rounding is to nearest and so has no side to lean to, and at the very worst
// 64 rows lose half a multiple each, 2^-10 of the largest.
// Steps below 2^-60 x 2^-15 count as zero, so that no inverse overflows; what is not finite makes a step NaN.
#include "kernels/attend_pairs.inl"

namespace kvtide {
namespace {

constexpr int kBlock = 32;  // elements of a q8_0 block
constexpr int kMaxBlocks = kMaxHeadDim / kBlock;
constexpr float kLargestWord = 32767.0f;

// The step of numbers of which the largest is `largest`.
inline float step_of(float largest, float* inverse) {
  const bool zero = largest < 0x1p-60f, finite = largest <= 0x1.fffffep127f;
  *inverse = zero || !finite ? 0.0f : kLargestWord / largest;
  return zero ? 0.0f : finite ? largest * (1.0f / kLargestWord) : __builtin_nanf("");
}

// rows: [count][dim]; words: [count][dim / 2] pairs of int16 in the order of pack_byte_keys; steps:
// [count][dim / 32].
void quantize_queries(int count, int dim, const float* rows, std::uint32_t* words, float* steps) noexcept {
  for (int block = 0; block < count * dim / kBlock; ++block) {
    const Lanes low = load(rows + block * kBlock), high = load(rows + block * kBlock + kLanes);
    float inverse = 0.0f;
    steps[block] = step_of(reduce_max_bits(max_bits(abs(low), abs(high))), &inverse);
    std::uint32_t whole[kBlock / 2];
    store_words(whole, mul(low, set1(inverse)));
    store_words(whole + kLanes / 2, mul(high, set1(inverse)));
    std::uint32_t* out = words + block * kBlock / 2;
    for (int i = 0; i < kBlock / 2; i += 2) {  // dimensions 0 and 1, 2 and 3
      out[i] = (whole[i] & 0xffffu) | whole[i + 1] << 16;
      out[i + 1] = whole[i] >> 16 | (whole[i + 1] & 0xffff0000u);
    }
  }
}

// Steps of rows as f16 bits, [block][place].
using Steps = std::uint16_t[kMaxBlocks][kTileRows];

// Rows first, first + stride, ... lie at the places [begin, end); elsewhere there are zeros.
constexpr BlockQ8_0 kNoRow[kMaxBlocks] = {};
inline const BlockQ8_0* row_at(const std::byte* first, std::int64_t stride, int begin, int end, int place) {
  if (place < begin || place >= end) return kNoRow;
  return reinterpret_cast<const BlockQ8_0*>(first + (place - begin) * stride);
}

// Keys as [pair of dimensions][place], where dimensions 0 and 2, 1 and 3 of every four make a pair.
inline void pack_byte_keys(const AttendTile tile, int dim, std::uint32_t* out, Steps& steps) {
  for (int group = tile.begin & ~(kLanes - 1); group < tile.end; group += kLanes) {
    const int begin = tile.begin > group ? tile.begin : group;
    const int end = tile.end < group + kLanes ? tile.end : group + kLanes;
    fetch(tile.values + (begin - tile.begin) * tile.value_stride, (end - begin) * tile.value_stride);
    const BlockQ8_0* keys[kLanes];
    for (int i = 0; i < kLanes; ++i)
      keys[i] = row_at(tile.keys, tile.key_stride, tile.begin, tile.end, group + i);
    for (int block = 0; block < dim / kBlock; block += 2) {
      const int second = block + 1 < dim / kBlock ? 1 : 0;
      Pairs rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const BlockQ8_0* key = keys[i] + block;
        rows[i] = load_bytes(key->qs, key[second].qs);
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
inline void pack_byte_values(const AttendTile tile, int dim, std::uint32_t* out, Steps& steps) {
  __builtin_memset(steps, 0, static_cast<std::size_t>(dim / kBlock) * sizeof *steps);
  for (int place = tile.begin & ~1; place < tile.end; place += 2) {
    fetch(tile.keys + (place + kTileRows - tile.begin) * tile.key_stride, 2 * tile.key_stride);
    const BlockQ8_0* a = row_at(tile.values, tile.value_stride, tile.begin, tile.end, place);
    const BlockQ8_0* b = row_at(tile.values, tile.value_stride, tile.begin, tile.end, place + 1);
    for (int block = 0; block < dim / kBlock; ++block) {
      steps[block][place] = a[block].d;
      steps[block][place + 1] = b[block].d;
      store_zipped(out + place / 2 * dim + block * kBlock, a[block].qs, b[block].qs);
    }
  }
}

// Scores of the tile's rows.
inline void score_ints(const AttendTile& tile, const AttendQueries& queries, std::uint32_t* packed,
                       float (*scores)[kTileRows]) {
  alignas(64) Steps steps;
  alignas(64) float mass[kTileRows];
  const int dim = queries.head_dim, blocks = dim / kBlock;
  pack_byte_keys(tile, dim, packed, steps);
  read_mass(tile, mass);
  const int group = tile.begin / kLanes, groups = (tile.end + kLanes - 1) / kLanes;
  for (int i = 0; i < queries.count; ++i)
    for (int place = group * kLanes; place < groups * kLanes; place += kLanes)
      store(scores[i] + place, set1(0.0f));
  for (int block = 0; block < blocks; ++block) {
    alignas(64) float step[kTileRows];
    for (int place = group * kLanes; place < groups * kLanes; place += kLanes)
      store(step + place, load(steps[block] + place));
    each_vector(group, groups, [&]<int V>(int vector) {
      each_query(queries.count, [&]<int Q>(int first) {
        Ints sum[Q][V];
        multiply<Q, V>(queries.words + (first * dim + block * kBlock) / 2, dim / 2,
                       packed + block * kBlock / 2 * kTileRows + vector * kLanes, kTileRows, kBlock / 2, sum);
        for (int i = 0; i < Q; ++i)
          for (int v = 0; v < V; ++v) {
            const int place = (vector + v) * kLanes;
            float* target = scores[first + i] + place;
            const Lanes both = mul(set1(queries.steps[(first + i) * blocks + block]), load(step + place));
            store(target, fma(to_lanes(sum[i][v]), both, load(target)));
          }
      });
    });
  }
  const Lanes scale = set1(queries.scale);
  for (int i = 0; i < queries.count; ++i)
    for (int place = group * kLanes; place < groups * kLanes; place += kLanes)
      store(scores[i] + place, fma(load(scores[i] + place), scale, load(mass + place)));
}

// Probabilities times steps in whole numbers, and their own step. A row that is not seen weighs nothing,
// whatever its step is.
inline float weigh(const float* p, const std::uint16_t* steps, std::uint32_t* out) {
  constexpr int kVectors = kTileRows / kLanes;
  const Lanes zero = set1(0.0f);
  Lanes weight[kVectors], largest = zero;
  for (int v = 0; v < kVectors; ++v) {
    const Lanes one = load(p + v * kLanes);
    weight[v] = select_less(zero, one, mul(one, load(steps + v * kLanes)), zero);
    largest = max_bits(largest, abs(weight[v]));
  }
  float inverse = 0.0f;
  const float step = step_of(reduce_max_bits(largest), &inverse);
  for (int v = 0; v < kVectors; ++v) store_words(out + v * kLanes / 2, mul(weight[v], set1(inverse)));
  return step;
}

// out = out * keep + take * (values weighed by p).
inline void mix_ints(const AttendTile& tile, const AttendQueries& queries, const float (*p)[kTileRows],
                     const float* keep, const float* take, std::uint32_t* packed, float* out) {
  alignas(64) Steps steps;
  alignas(64) std::uint32_t weights[kQueryBlock][kTileRows / 2];
  float factor[kQueryBlock];
  const int dim = queries.head_dim, first_pair = tile.begin / 2, pairs = (tile.end + 1) / 2 - first_pair;
  pack_byte_values(tile, dim, packed, steps);
  for (int block = 0; block < dim / kBlock; ++block) {
    for (int i = 0; i < queries.count; ++i) factor[i] = weigh(p[i], steps[block], weights[i]) * take[i];
    each_vector<kPairVectors == 1 ? 1 : kBlock / kLanes>(0, kBlock / kLanes, [&]<int V>(int vector) {
      const int d = block * kBlock + vector * kLanes;
      each_query(queries.count, [&]<int Q>(int first) {
        Ints sum[Q][V];
        multiply<Q, V>(weights[first] + first_pair, kTileRows / 2, packed + first_pair * dim + d, dim, pairs,
                       sum);
        for (int i = 0; i < Q; ++i)
          for (int v = 0; v < V; ++v) {
            float* target = out + (first + i) * dim + d + v * kLanes;
            store(target, fma(to_lanes(sum[i][v]), set1(factor[first + i]),
                              mul(load(target), set1(keep[first + i]))));
          }
      });
    });
  }
}

void fold_tile_rounded(const AttendTile& tile, const AttendQueries& queries,
                       const AttendPartials& into) noexcept {
  alignas(64) std::uint32_t packed[kTileRows * kMaxPairs];  // keys, then values
  alignas(64) float scores[kQueryBlock][kTileRows];
  alignas(64) std::uint32_t p[kQueryBlock][kTileRows / 2];
  float keep[kQueryBlock], take[kQueryBlock];
  const int from = tile.begin & ~(2 * kLanes - 1), to = (tile.end + 2 * kLanes - 1) & ~(2 * kLanes - 1);
  const bool whole_values = tile.value_type == DType::q8_0;
  if (tile.key_type == DType::q8_0 && tile.rotation == nullptr)
    score_ints(tile, queries, packed, scores);
  else
    score_pairs(tile, queries, packed, scores);
  hide_unseen(queries, 0, kTileRows, scores);
  for (int i = 0; i < queries.count; ++i) {
    if (queries.lo[i] >= queries.hi[i]) {  // sees nothing here: its partial stays, bit for bit
      for (std::uint32_t& pair : p[i]) pair = 0;
      for (float& weight : scores[i]) weight = 0.0f;
      keep[i] = 1.0f;
      take[i] = 0.0f;
      continue;
    }
    float tile_max = 0.0f, tile_sum = 0.0f;
    if (whole_values)
      soften(scores[i], &tile_max, &tile_sum);
    else
      soften_pairs(scores[i], from, to, p[i], &tile_max, &tile_sum);
    into.max[i] = join(into.max[i], tile_max, &keep[i], &take[i]);
    into.sum[i] = __builtin_fmaf(tile_sum, take[i], into.sum[i] * keep[i]);
  }
  if (whole_values)
    mix_ints(tile, queries, scores, keep, take, packed, into.out);
  else
    mix_pairs(tile, queries, p, keep, take, packed, into.out);
}

}  // namespace
}  // namespace kvtide
