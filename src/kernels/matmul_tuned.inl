// matmul_tuned.inl: what the tuned matrix products of x86 share: the steps along k and the walk over rows. Included by
// matmul.avx2.cpp, matmul.avx512.cpp and matmul.amx.cpp behind what it is written on, which includes what
// matmul_decode.inl wants:
//   Float16, Int16  sixteen floats or 32-bit integers; lane r belongs to row r of the panel
//   load, store, store_columns, half16, bf16_16, set1, mul, add, subtract, fma, fnma, to_float
//   zero, every (an integer in each lane), shifted_left<bits>, less (a difference), bytes_to_int
//   Partial         the sums of kGroupsAtOnce<most> groups of quants up to `most`: begin_partial(sum) before them,
//                   dot(partial, w, x) with the products of four unsigned bytes and four signed ones, and
//                   end_partial(sum, partial) the sum with them
//   dot_bytes(sum, w, x)  the same for a group of q8_0 as bytes_of gives it, which is kByteOffset too large
//   nibble_group, five_bit_group, six_bit_group, bytes_of, byte_group  quants of four elements, a byte each
//   byte_of         byte c of every lane less the offset, as float
//   RowCounts, DotRows, GemmRows  how many rows are multiplied at once, the largest number first
// Loops over the M rows of a step are unrolled: their sums stay in registers.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/unroll.h"

namespace kvtide {
namespace {

// M rows of a group of activations, at one block.
template <int M>
struct XView {
  QuantRow at;

  const std::int8_t* q(int group, int m) const { return at.q + m * kRunBytes + group * 4; }
  Float16 d(int m) const { return set1(at.d[m]); }
  Float16 d_sum(int m) const { return set1(at.d_sum[m]); }
  // Minus the sum of the block, or of a half of it.
  Int16 minus_sum(int m) const { return every(at.minus_sums[m]); }
  Int16 minus_sum16(int half, int m) const {
    const Int16 second = every(at.minus_sums[at.stride + m]);
    return half == 1 ? second : less(minus_sum(m), second);
  }

  void skip(std::int64_t blocks) {
    at.q += kRunBytes * at.stride * blocks;
    at.d += at.stride * blocks;
    at.d_sum += at.stride * blocks;
    at.minus_sums += 2 * at.stride * blocks;
  }
};

// A block of 32 elements where it lies in its panel.
template <class Type>
struct Packed {
  const typename Type::Panel& panel;
  int sub;

  Int16 group(int g) const { return Type::group(panel, sub, g); }
  template <int i>
  Float16 number() const {
    return Type::template number<i>(panel, sub);
  }
};

// sum[m] += the products of the groups of the block from kFirst on, whose quants are at most kMost.
template <int kMost, int kFirst, int kGroups, int M, class Block>
inline void dot_groups(const Block& block, const XView<M>& x, Int16 sum[M]) {
  constexpr int kAtOnce = std::min(kGroups, kGroupsAtOnce<kMost>);
  each<kGroups / kAtOnce>([&](auto step) {
    Partial part[M];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) part[m] = begin_partial(sum[m]);
    each<kAtOnce>([&](auto i) {
      constexpr int g = kFirst + step * kAtOnce + i;
      const Int16 w = block.group(g);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) part[m] = dot(part[m], w, x.q(g, m));
    });
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sum[m] = end_partial(sum[m], part[m]);
  });
}

// acc[m] += sum[m] * d * the rows' own steps.
template <int M>
inline void fold(const Int16 sum[M], Float16 d, const XView<M>& x, Float16 acc[M]) {
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = fma(to_float(sum[m]), mul(d, x.d(m)), acc[m]);
}

// A block of 32 elements whose quants are 1 << kOffsetBits too large.
template <int kOffsetBits, int M, class Block>
inline void fold_block(const Block& block, const XView<M>& x, Float16 acc[M]) {
  Int16 sum[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) sum[m] = shifted_left<kOffsetBits>(x.minus_sum(m));
  dot_groups<2 * (1 << kOffsetBits) - 1, 0, 8>(block, x, sum);
  fold<M>(sum, block.template number<0>(), x, acc);
}

// Every type tells of a block: group(panel, sub, g), kNumbers of number<i>(panel, sub), and step(), which adds the
// products of the block.
struct Q4_0 {
  using Panel = PanelQ4_0;
  static constexpr int kBlock = 32, kNumbers = 1;
  static Int16 group(const Panel& p, int, int g) { return nibble_group(p.q, g); }
  template <int>
  static Float16 number(const Panel& p, int) {
    return half16(p.d);
  }
  template <int M, class Block>
  static void step(const Block& block, const XView<M>& x, Float16 acc[M]) {
    fold_block<3>(block, x, acc);
  }
};

struct Q4_1 {
  using Panel = PanelQ4_1;
  static constexpr int kBlock = 32, kNumbers = 2;
  static Int16 group(const Panel& p, int, int g) { return nibble_group(p.q, g); }
  template <int i>
  static Float16 number(const Panel& p, int) {
    return half16(i == 0 ? p.d : p.m);
  }
  template <int M, class Block>
  static void step(const Block& block, const XView<M>& x, Float16 acc[M]) {
    Int16 sum[M];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sum[m] = zero();
    dot_groups<15, 0, 8>(block, x, sum);
    fold<M>(sum, block.template number<0>(), x, acc);
    const Float16 offset = block.template number<1>();
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) acc[m] = fma(offset, x.d_sum(m), acc[m]);
  }
};

struct Q5_0 {
  using Panel = PanelQ5_0;
  static constexpr int kBlock = 32, kNumbers = 1;
  static Int16 group(const Panel& p, int, int g) { return five_bit_group(p.q, p.high, g); }
  template <int>
  static Float16 number(const Panel& p, int) {
    return half16(p.d);
  }
  template <int M, class Block>
  static void step(const Block& block, const XView<M>& x, Float16 acc[M]) {
    fold_block<4>(block, x, acc);
  }
};

struct Q8_0 {
  using Panel = PanelQ8_0;
  static constexpr int kBlock = 32, kNumbers = 1;
  static Int16 group(const Panel& p, int, int g) { return bytes_of(p.q[g]); }
  template <int>
  static Float16 number(const Panel& p, int) {
    return half16(p.d);
  }
  template <int M, class Block>
  static void step(const Block& block, const XView<M>& x, Float16 acc[M]) {
    Int16 sum[M];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sum[m] = kByteOffset == 128 ? shifted_left<7>(x.minus_sum(m)) : zero();
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const Int16 w = block.group(g);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) sum[m] = dot_bytes(sum[m], w, x.q(g, m));
    }
    fold<M>(sum, block.template number<0>(), x, acc);
  }
};

// A scale or min of a sub-block of a k-quant.
template <class Byte>
inline Float16 scaled(const Half* d, const Byte* times) {
  return mul(half16(d), to_float(bytes_to_int(times)));
}

// A sub-block of q4_k or q5_k: a scale and a min of its own.
template <int kMost, int M, class Block>
inline void fold_with_min(const Block& block, const XView<M>& x, Float16 acc[M]) {
  Int16 sum[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) sum[m] = zero();
  dot_groups<kMost, 0, 8>(block, x, sum);
  const Float16 scale = block.template number<0>(), min = block.template number<1>();
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = fma(mul(to_float(sum[m]), scale), x.d(m), acc[m]);
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = fnma(min, x.d_sum(m), acc[m]);
}

struct Q4K {
  using Panel = PanelQ4K;
  static constexpr int kBlock = 256, kNumbers = 2;
  static Int16 group(const Panel& p, int s, int g) { return nibble_group(p.sub[s].q, g); }
  template <int i>
  static Float16 number(const Panel& p, int s) {
    return i == 0 ? scaled(p.d, p.sub[s].scale) : scaled(p.dmin, p.sub[s].min);
  }
  template <int M, class Block>
  static void step(const Block& block, const XView<M>& x, Float16 acc[M]) {
    fold_with_min<15>(block, x, acc);
  }
};

struct Q5K {
  using Panel = PanelQ5K;
  static constexpr int kBlock = 256, kNumbers = 2;
  static Int16 group(const Panel& p, int s, int g) { return five_bit_group(p.sub[s].q, p.sub[s].high, g); }
  template <int i>
  static Float16 number(const Panel& p, int s) {
    return i == 0 ? scaled(p.d, p.sub[s].scale) : scaled(p.dmin, p.sub[s].min);
  }
  template <int M, class Block>
  static void step(const Block& block, const XView<M>& x, Float16 acc[M]) {
    fold_with_min<31>(block, x, acc);
  }
};

struct Q6K {
  using Panel = PanelQ6K;
  static constexpr int kBlock = 256, kNumbers = 2;
  static Int16 group(const Panel& p, int s, int g) { return six_bit_group(p.sub[s], g); }
  template <int i>
  static Float16 number(const Panel& p, int s) {
    return scaled(p.d, p.sub[s].scale[i]);
  }
  template <int M, class Block>
  static void step(const Block& block, const XView<M>& x, Float16 acc[M]) {
    Float16 total[M];
    each<2>([&](auto h) {
      Int16 sum[M];
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) sum[m] = shifted_left<5>(x.minus_sum16(h, m));
      dot_groups<63, 4 * h, 4>(block, x, sum);
      const Float16 scale = block.template number<h>();
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m)
        total[m] = h == 0 ? mul(to_float(sum[m]), scale) : fma(to_float(sum[m]), scale, total[m]);
    });
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) acc[m] = fma(total[m], x.d(m), acc[m]);
  }
};

// Panels lie one behind the other and come from memory for the first rows alone. Processors stop fetching ahead at every
// small page: so much further on, lines come into the second cache.
constexpr std::int64_t kFetchAhead = 4096;

template <class Type, int M>
inline void tile(const typename Type::Panel* panel, const QuantRows& rows, const PanelOut& out,
                 std::int64_t row) {
  Float16 acc[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = set1(0.0f);
  XView<M> x{rows.row(row)};
  constexpr int kSteps = Type::kBlock / 32;
  constexpr std::int64_t kStepBytes = sizeof(*panel) / kSteps;
  const std::int64_t fetched = row == 0 ? kStepBytes : 0;
  const std::byte* ahead = reinterpret_cast<const std::byte*>(panel) + kFetchAhead;
  // Rows of outputs are in pages of their own: what is stored in the end comes in meanwhile.
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) __builtin_prefetch(out.y + (row + m) * out.stride, 1, 3);
  for (std::int64_t b = 0; b < rows.k / Type::kBlock; ++b)
#pragma GCC unroll 1
    for (int s = 0; s < kSteps; ++s, x.skip(1), ahead += kStepBytes) {
      for (std::int64_t i = 0; i < fetched; i += 64) __builtin_prefetch(ahead + i, 0, 2);
      Type::template step<M>(Packed<Type>{panel[b], s}, x, acc);
    }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) store_columns(out.y + (row + m) * out.stride, acc[m], out.columns);
}

template <class Type, int kFirst, int... kRest>
inline void dot_rows(const typename Type::Panel* panel, const QuantRows& rows, const PanelOut& out,
                     std::int64_t row, RowCounts<kFirst, kRest...>) {
  for (; row + kFirst <= rows.rows; row += kFirst) tile<Type, kFirst>(panel, rows, out, row);
  if constexpr (sizeof...(kRest) > 0) dot_rows<Type>(panel, rows, out, row, RowCounts<kRest...>());
}

template <class Type>
void dot_panel(const std::byte* panel, const QuantRows& rows, const PanelOut& out) noexcept {
  dot_rows<Type>(reinterpret_cast<const typename Type::Panel*>(panel), rows, out, 0, DotRows());
}

}  // namespace
}  // namespace kvtide

#include "kernels/matmul_decode.inl"
