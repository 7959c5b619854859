// matmul.amx.cpp: matrix products with AMX, whose tiles are registers of sixteen rows of 64 bytes. One instruction
// multiplies sixteen rows of activations by the sixteen rows of a panel, 32 elements each: a block. Its sums are whole
// numbers and exact; the float steps of the block follow as in matmul_tuned.inl, with sixteen accumulators in registers.
//
// Rows of activations that do not fill a tile take the way of AVX-512. Whoever picks this table has asked the system for
// the use of tiles.
#include <algorithm>
#include <type_traits>

#include "kernels/matmul_lanes.avx512.h"
#include "kernels/tiles.amx.h"

// Behind the operations on which it is written.
#include "kernels/matmul_tuned.inl"

namespace kvtide {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileBytes = kTileRows * kRunBytes;  // the activations of a block
// Blocks of a panel that are unpacked at once: 8 KiB, which stay in the first cache.
constexpr int kChunk = 16;
// Tiles of rows whose accumulators wait in memory between chunks.
constexpr std::int64_t kMostTiles = 8;
// Blocks between the begin of a product and the use of its sums, which are stored a block later than it begins. As far
// ahead, activations come into the first cache.
constexpr int kAhead = 3;
static_assert(kGroupRows == kTileRows && kRunBytes == 32);

template <class Type>
constexpr int kParts = std::is_same_v<Type, Q6K> ? 2 : 1;  // of a block: each has a factor of its own

template <class Type>
constexpr std::uint8_t kPartBytes = kRunBytes / kParts<Type>;
template <class Type>
constexpr std::uint8_t kPartGroups = kPartBytes<Type> / 4;

// Tile 0 has the sums, tiles 1 and 2 the activations and the weights of a part of a block, tile 3 the sums of a second part.
template <class Type>
constexpr TileConfig kConfig{.bytes = {64, kPartBytes<Type>, 64, 64},
                             .rows = {kTileRows, kTileRows, kPartGroups<Type>, kTileRows}};

// Blocks of a panel as tiles want them, and the two rows of factors of each: the step and what comes with it.
struct Chunk {
  alignas(64) std::int8_t q[kChunk][8][64];
  alignas(64) float first[kChunk][kPanelRows], second[kChunk][kPanelRows];
};

// Sums of a block, by part.
template <class Type>
struct Sums {
  alignas(64) std::int32_t of[kParts<Type>][kTileRows][kPanelRows];
};

template <class Group>
inline void unpack_groups(std::int8_t (*q)[64], int offset, Group group) {
  const __m512i less = _mm512_set1_epi8(static_cast<char>(offset));
  for (int g = 0; g < 8; ++g) _mm512_store_si512(q[g], _mm512_sub_epi8(wide(group(g)), less));
}
inline void unpack(Q4_0, const PanelQ4_0& p, int, Chunk& c, int i) {
  unpack_groups(c.q[i], 8, [&](int g) { return nibble_group(p.q, g); });
  store(c.first[i], half16(p.d));
}
inline void unpack(Q4_1, const PanelQ4_1& p, int, Chunk& c, int i) {
  unpack_groups(c.q[i], 0, [&](int g) { return nibble_group(p.q, g); });
  store(c.first[i], half16(p.d));
  store(c.second[i], half16(p.m));
}
inline void unpack(Q5_0, const PanelQ5_0& p, int, Chunk& c, int i) {
  unpack_groups(c.q[i], 16, [&](int g) { return five_bit_group(p.q, p.high, g); });
  store(c.first[i], half16(p.d));
}
inline void unpack(Q8_0, const PanelQ8_0& p, int, Chunk& c, int i) {
  unpack_groups(c.q[i], 0, [&](int g) { return ints(bytes64(p.q[g])); });
  store(c.first[i], half16(p.d));
}
template <class Panel>
inline void unpack_scale_and_min(const Panel& p, int s, Chunk& c, int i) {
  store(c.first[i], mul(half16(p.d), to_float(bytes_to_int(p.sub[s].scale))));
  store(c.second[i], mul(half16(p.dmin), to_float(bytes_to_int(p.sub[s].min))));
}
inline void unpack(Q4K, const PanelQ4K& p, int s, Chunk& c, int i) {
  unpack_groups(c.q[i], 0, [&](int g) { return nibble_group(p.sub[s].q, g); });
  unpack_scale_and_min(p, s, c, i);
}
inline void unpack(Q5K, const PanelQ5K& p, int s, Chunk& c, int i) {
  unpack_groups(c.q[i], 0, [&](int g) { return five_bit_group(p.sub[s].q, p.sub[s].high, g); });
  unpack_scale_and_min(p, s, c, i);
}
inline void unpack(Q6K, const PanelQ6K& p, int s, Chunk& c, int i) {
  unpack_groups(c.q[i], 32, [&](int g) { return six_bit_group(p.sub[s], g); });
  store(c.first[i], mul(half16(p.d), to_float(bytes_to_int(p.sub[s].scale[0]))));
  store(c.second[i], mul(half16(p.d), to_float(bytes_to_int(p.sub[s].scale[1]))));
}

inline Float16 sums_of(const std::int32_t* sums) { return _mm512_cvtepi32_ps(_mm512_load_si512(sums)); }

// The accumulator of a row behind a block. x: the block's step and its step times its sum.
struct Factors {
  Float16 first, second;
};
template <class Type>  // q4_0, q5_0, q8_0
inline Float16 fold(const Sums<Type>& sums, int m, const Factors& w, const QuantRow& x, Float16 acc) {
  return fma(sums_of(sums.of[0][m]), mul(w.first, set1(x.d[m])), acc);
}
inline Float16 fold(const Sums<Q4_1>& sums, int m, const Factors& w, const QuantRow& x, Float16 acc) {
  acc = fma(sums_of(sums.of[0][m]), mul(w.first, set1(x.d[m])), acc);
  return fma(w.second, set1(x.d_sum[m]), acc);
}
inline Float16 fold_with_min(const std::int32_t* sums, int m, const Factors& w, const QuantRow& x,
                             Float16 acc) {
  acc = fma(mul(sums_of(sums), w.first), set1(x.d[m]), acc);
  return fnma(w.second, set1(x.d_sum[m]), acc);
}
inline Float16 fold(const Sums<Q4K>& sums, int m, const Factors& w, const QuantRow& x, Float16 acc) {
  return fold_with_min(sums.of[0][m], m, w, x, acc);
}
inline Float16 fold(const Sums<Q5K>& sums, int m, const Factors& w, const QuantRow& x, Float16 acc) {
  return fold_with_min(sums.of[0][m], m, w, x, acc);
}
inline Float16 fold(const Sums<Q6K>& sums, int m, const Factors& w, const QuantRow& x, Float16 acc) {
  const Float16 total = fma(sums_of(sums.of[1][m]), w.second, mul(sums_of(sums.of[0][m]), w.first));
  return fma(total, set1(x.d[m]), acc);
}

// The products of a block: sixteen rows of activations, one run each, by the rows of the panel. Compilers want the numbers
// of tiles written out.
template <class Type>
inline void multiply(const std::int8_t* x, const std::int8_t (*w)[64]) {
  for (int line = 0; line < kTileBytes; line += 64) __builtin_prefetch(x + kAhead * kTileBytes + line);
  _tile_loadd(1, x, kRunBytes);
  _tile_loadd(2, w, 64);
  _tile_zero(0);
  _tile_dpbssd(0, 1, 2);
  if constexpr (kParts<Type> == 2) {
    _tile_loadd(1, x + kPartBytes<Type>, kRunBytes);
    _tile_loadd(2, w + kPartGroups<Type>, 64);
    _tile_zero(3);
    _tile_dpbssd(3, 1, 2);
  }
}
template <class Type>
inline void store_sums(Sums<Type>& sums) {
  _tile_stored(0, sums.of[0], 64);
  if constexpr (kParts<Type> == 2) _tile_stored(3, sums.of[1], 64);
}

// Sixteen rows of activations along a chunk; x is at its first block. acc: [16][16].
template <class Type>
inline void along_chunk(const Chunk& chunk, int blocks, QuantRow x, float (*acc)[kPanelRows]) {
  Sums<Type> sums[kAhead];
  Float16 a[kTileRows];
#pragma GCC unroll 16
  for (int m = 0; m < kTileRows; ++m) a[m] = load(acc[m]);
  // The next product can begin after 16 cycles, and sums are there after 52: they are stored when that one begins.
  const auto begin_block = [&](int b) {
    if (b > 0 && b <= blocks) store_sums<Type>(sums[(b - 1) % kAhead]);
    if (b < blocks) multiply<Type>(x.q + b * kTileBytes, chunk.q[b]);
  };
  for (int b = 0; b < kAhead; ++b) begin_block(b);
  for (int b = 0; b < blocks; ++b, x.d += kTileRows, x.d_sum += kTileRows) {
    begin_block(b + kAhead);
    const Factors w{load(chunk.first[b]), load(chunk.second[b])};
#pragma GCC unroll 16
    for (int m = 0; m < kTileRows; ++m) a[m] = fold(sums[b % kAhead], m, w, x, a[m]);
  }
#pragma GCC unroll 16
  for (int m = 0; m < kTileRows; ++m) store(acc[m], a[m]);
}

// Whole tiles of rows, at most kMostTiles, from `row` on.
template <class Type>
inline void tiles_of_rows(const typename Type::Panel* panel, const QuantRows& rows, std::int64_t row,
                          std::int64_t tiles, const PanelOut& out) {
  constexpr int kSteps = Type::kBlock / 32;
  Chunk chunk;
  alignas(64) float acc[kMostTiles][kTileRows][kPanelRows] = {};
  const std::int64_t blocks = rows.k / 32;
  for (std::int64_t b0 = 0; b0 < blocks; b0 += kChunk) {
    const int count = static_cast<int>(std::min<std::int64_t>(kChunk, blocks - b0));
    for (int i = 0; i < count; ++i)
      unpack(Type(), panel[(b0 + i) / kSteps], static_cast<int>((b0 + i) % kSteps), chunk, i);
    written();
    for (std::int64_t t = 0; t < tiles; ++t) {
      QuantRow x = rows.row(row + t * kTileRows);
      x.q += b0 * kTileBytes;
      x.d += b0 * kTileRows;
      x.d_sum += b0 * kTileRows;
      float* y = out.y + (row + t * kTileRows) * out.stride;
      const bool last = b0 + count == blocks;
      for (int m = 0; m < kTileRows && last; ++m) __builtin_prefetch(y + m * out.stride, 1, 3);
      along_chunk<Type>(chunk, count, x, acc[t]);
      if (!last) continue;
      // A tile at a time: each row is in a page of its own, and many stores at once wait for each other.
      for (int m = 0; m < kTileRows; ++m) store_columns(y + m * out.stride, load(acc[t][m]), out.columns);
    }
  }
}

template <class Type>
void tile_panel(const std::byte* bytes, const QuantRows& rows, const PanelOut& out) noexcept {
  const auto* panel = reinterpret_cast<const typename Type::Panel*>(bytes);
  const std::int64_t tiles = rows.rows / kTileRows;
  if (tiles > 0) {
    _tile_loadconfig(&kConfig<Type>);
    for (std::int64_t t = 0; t < tiles; t += kMostTiles)
      tiles_of_rows<Type>(panel, rows, t * kTileRows, std::min(kMostTiles, tiles - t), out);
    _tile_release();
  }
  dot_rows<Type>(panel, rows, out, tiles * kTileRows, DotRows());
}

constexpr MatmulRow tile_row() {
  MatmulRow row = tuned_row("amx");
  row.q4_0 = &tile_panel<Q4_0>;
  row.q4_1 = &tile_panel<Q4_1>;
  row.q5_0 = &tile_panel<Q5_0>;
  row.q8_0 = &tile_panel<Q8_0>;
  row.q4_k = &tile_panel<Q4K>;
  row.q5_k = &tile_panel<Q5K>;
  row.q6_k = &tile_panel<Q6K>;
  return row;
}

}  // namespace

extern constinit const MatmulRow kMatmulAmx{tile_row()};

}  // namespace kvtide
