// matmul_tuned.inl: what the tuned matrix products share: the steps along k, the walk over rows, panels to f32, and the
// product of f32 panels. Included by matmul.avx2.cpp and matmul.avx512.cpp behind what it is written on:
//   Float16, Int16  sixteen floats or 32-bit integers; lane r belongs to row r of the panel
//   load, store, store_columns, half16, bf16_16, set1, mul, add, subtract, fma, fnma, to_float
//   zero, every (an integer in each lane), shifted_left<bits>, plus, bytes_to_int
//   dot(sum, w, x)        sum + the products of four unsigned bytes (at most 63) and four signed ones
//   dot_bytes(sum, w, x)  the same for a group of q8_0 as bytes_of gives it, which is kByteOffset too large
//   nibble_group, five_bit_group, six_bit_group, bytes_of, byte_group  quants of four elements, a byte each
//   byte_of         byte c of every lane less the offset, as float
//   RowCounts, DotRows, GemmRows  how many rows are multiplied at once, the largest number first
// Loops over the M rows of a step are unrolled: their sums stay in registers.
#include <cstddef>
#include <cstdint>

namespace kvtide {
namespace {

// M rows of a group of activations, at one block.
template <int M>
struct XView {
  QuantRow at;
  std::int64_t stride() const { return M == kGroupRows ? kGroupRows : at.stride; }

  const std::int8_t* q(int entry, int m) const { return at.q + (entry * stride() + m) * 4; }
  Float16 d(int m) const { return set1(at.d[m]); }
  Float16 d_sum(int m) const { return set1(at.d_sum[m]); }
  Int16 minus_sum16(int half, int m) const { return every(at.minus_sums[half * stride() + m]); }
  Int16 minus_sum(int m) const { return plus(minus_sum16(0, m), minus_sum16(1, m)); }

  void next() {
    at.q += 32 * stride();
    at.d += stride();
    at.d_sum += stride();
    at.minus_sums += 2 * stride();
  }
};

// sum[m] += the products of groups [first, last) of the block.
template <int M, class Group>
inline void dot_groups(const XView<M>& x, int first, int last, Int16 sum[M],
                       Group group) {
#pragma GCC unroll 8
  for (int g = first; g < last; ++g) {
    const Int16 w = group(g);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sum[m] = dot(sum[m], w, x.q(g, m));
  }
}

// acc[m] += sum[m] * d * the rows' own steps.
template <int M>
inline void fold(const Int16 sum[M], Float16 d, const XView<M>& x, Float16 acc[M]) {
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = fma(to_float(sum[m]), mul(d, x.d(m)), acc[m]);
}

// A block of 32 elements whose quants are 1 << kOffsetBits too large.
template <int kOffsetBits, int M, class Group>
inline void fold_block(const XView<M>& x, Float16 d, Float16 acc[M], Group group) {
  Int16 sum[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) sum[m] = shifted_left<kOffsetBits>(x.minus_sum(m));
  dot_groups<M>(x, 0, 8, sum, group);
  fold<M>(sum, d, x, acc);
}

struct Q4_0 {
  using Panel = PanelQ4_0;
  static constexpr int kBlock = 32;
  template <int M>
  static void step(const Panel& p, int, const XView<M>& x, Float16 acc[M]) {
    fold_block<3, M>(x, half16(p.d), acc, [&](int g) { return nibble_group(p.q, g); });
  }
};

struct Q4_1 {
  using Panel = PanelQ4_1;
  static constexpr int kBlock = 32;
  template <int M>
  static void step(const Panel& p, int, const XView<M>& x, Float16 acc[M]) {
    Int16 sum[M];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sum[m] = zero();
    dot_groups<M>(x, 0, 8, sum, [&](int g) { return nibble_group(p.q, g); });
    fold<M>(sum, half16(p.d), x, acc);
    const Float16 offset = half16(p.m);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) acc[m] = fma(offset, x.d_sum(m), acc[m]);
  }
};

struct Q5_0 {
  using Panel = PanelQ5_0;
  static constexpr int kBlock = 32;
  template <int M>
  static void step(const Panel& p, int, const XView<M>& x, Float16 acc[M]) {
    fold_block<4, M>(x, half16(p.d), acc, [&](int g) { return five_bit_group(p.q, p.high, g); });
  }
};

struct Q8_0 {
  using Panel = PanelQ8_0;
  static constexpr int kBlock = 32;
  template <int M>
  static void step(const Panel& p, int, const XView<M>& x, Float16 acc[M]) {
    Int16 sum[M];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sum[m] = kByteOffset == 128 ? shifted_left<7>(x.minus_sum(m)) : zero();
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const Int16 w = bytes_of(p.q[g]);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) sum[m] = dot_bytes(sum[m], w, x.q(g, m));
    }
    fold<M>(sum, half16(p.d), x, acc);
  }
};

// A sub-block of q4_k or q5_k: a scale and a min of its own.
template <int M, class Panel, class Group>
inline void fold_with_min(const Panel& p, const typename Panel::Sub& sub, const XView<M>& x, Float16 acc[M],
                          Group group) {
  Int16 sum[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) sum[m] = zero();
  dot_groups<M>(x, 0, 8, sum, group);
  const Float16 scale = mul(half16(p.d), to_float(bytes_to_int(sub.scale))),
                min = mul(half16(p.dmin), to_float(bytes_to_int(sub.min)));
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = fma(mul(to_float(sum[m]), scale), x.d(m), acc[m]);
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = fnma(min, x.d_sum(m), acc[m]);
}

struct Q4K {
  using Panel = PanelQ4K;
  static constexpr int kBlock = 256;
  template <int M>
  static void step(const Panel& p, int s, const XView<M>& x, Float16 acc[M]) {
    fold_with_min<M>(p, p.sub[s], x, acc, [&](int g) { return nibble_group(p.sub[s].q, g); });
  }
};

struct Q5K {
  using Panel = PanelQ5K;
  static constexpr int kBlock = 256;
  template <int M>
  static void step(const Panel& p, int s, const XView<M>& x, Float16 acc[M]) {
    fold_with_min<M>(p, p.sub[s], x, acc,
                     [&](int g) { return five_bit_group(p.sub[s].q, p.sub[s].high, g); });
  }
};

struct Q6K {
  using Panel = PanelQ6K;
  static constexpr int kBlock = 256;
  template <int M>
  static void step(const Panel& p, int s, const XView<M>& x, Float16 acc[M]) {
    const auto& sub = p.sub[s];
    const Float16 d = half16(p.d);
    Float16 total[M];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      Int16 sum[M];
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) sum[m] = shifted_left<5>(x.minus_sum16(h, m));
      dot_groups<M>(x, 4 * h, 4 * h + 4, sum, [&](int g) { return six_bit_group(sub, g); });
      const Float16 scale = mul(d, to_float(bytes_to_int(sub.scale[h])));
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m)
        total[m] = h == 0 ? mul(to_float(sum[m]), scale) : fma(to_float(sum[m]), scale, total[m]);
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) acc[m] = fma(total[m], x.d(m), acc[m]);
  }
};

template <class Type, int M>
inline void tile(const typename Type::Panel* panel, const QuantRows& rows, const PanelOut& out,
                 std::int64_t row) {
  Float16 acc[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = set1(0.0f);
  XView<M> x{rows.row(row)};
  for (std::int64_t b = 0; b < rows.k / Type::kBlock; ++b)
#pragma GCC unroll 1
    for (int s = 0; s < Type::kBlock / 32; ++s, x.next()) Type::template step<M>(panel[b], s, x, acc);
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

// Stores the four elements of a group for all rows: out[c * 16 + row] = value(byte c of the row, as float).
template <class Value>
inline void spread(Int16 group, int offset, float* out, Value value) {
  for (int c = 0; c < 4; ++c) store(out + c * kPanelRows, value(byte_of(group, c, offset)));
}

// Decodes 32-element blocks [k0, k1): block(panel block, sub, out of 8 groups).
template <class Type, class Block>
inline void decode(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out, Block block) {
  for (std::int64_t b = k0 / 32; b < k1 / 32; ++b, out += 32 * kPanelRows)
    block(reinterpret_cast<const typename Type::Panel*>(panel)[b * 32 / Type::kBlock],
          static_cast<int>(b % (Type::kBlock / 32)), out);
}

void decode_f16(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  const auto* in = reinterpret_cast<const Half*>(panel);
  for (std::int64_t k = k0; k < k1; ++k, out += kPanelRows) store(out, half16(in + k * kPanelRows));
}
void decode_bf16(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  const auto* in = reinterpret_cast<const std::uint16_t*>(panel);
  for (std::int64_t k = k0; k < k1; ++k, out += kPanelRows) store(out, bf16_16(in + k * kPanelRows));
}
void decode_q4_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q4_0>(panel, k0, k1, out, [](const PanelQ4_0& p, int, float* to) {
    const Float16 d = half16(p.d);
    for (int g = 0; g < 8; ++g)
      spread(nibble_group(p.q, g), 8, to + 64 * g, [&](Float16 q) { return mul(d, q); });
  });
}
void decode_q4_1(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q4_1>(panel, k0, k1, out, [](const PanelQ4_1& p, int, float* to) {
    const Float16 d = half16(p.d), m = half16(p.m);
    for (int g = 0; g < 8; ++g)
      spread(nibble_group(p.q, g), 0, to + 64 * g, [&](Float16 q) { return add(mul(d, q), m); });
  });
}
void decode_q5_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q5_0>(panel, k0, k1, out, [](const PanelQ5_0& p, int, float* to) {
    const Float16 d = half16(p.d);
    for (int g = 0; g < 8; ++g)
      spread(five_bit_group(p.q, p.high, g), 16, to + 64 * g, [&](Float16 q) { return mul(d, q); });
  });
}
void decode_q8_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q8_0>(panel, k0, k1, out, [](const PanelQ8_0& p, int, float* to) {
    const Float16 d = half16(p.d);
    for (int g = 0; g < 8; ++g)
      spread(byte_group(p.q[g]), 128, to + 64 * g, [&](Float16 q) { return mul(d, q); });
  });
}
void decode_q4_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q4K>(panel, k0, k1, out, [](const PanelQ4K& p, int s, float* to) {
    const auto& sub = p.sub[s];
    const Float16 step = mul(half16(p.d), to_float(bytes_to_int(sub.scale)));
    const Float16 offset = mul(half16(p.dmin), to_float(bytes_to_int(sub.min)));
    for (int g = 0; g < 8; ++g)
      spread(nibble_group(sub.q, g), 0, to + 64 * g,
             [&](Float16 q) { return subtract(mul(step, q), offset); });
  });
}
void decode_q5_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q5K>(panel, k0, k1, out, [](const PanelQ5K& p, int s, float* to) {
    const auto& sub = p.sub[s];
    const Float16 step = mul(half16(p.d), to_float(bytes_to_int(sub.scale)));
    const Float16 offset = mul(half16(p.dmin), to_float(bytes_to_int(sub.min)));
    for (int g = 0; g < 8; ++g)
      spread(five_bit_group(sub.q, sub.high, g), 0, to + 64 * g,
             [&](Float16 q) { return subtract(mul(step, q), offset); });
  });
}
void decode_q6_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q6K>(panel, k0, k1, out, [](const PanelQ6K& p, int s, float* to) {
    const auto& sub = p.sub[s];
    const Float16 d = half16(p.d);
    for (int g = 0; g < 8; ++g) {
      const Float16 step = mul(d, to_float(bytes_to_int(sub.scale[g / 4])));
      spread(six_bit_group(sub, g), 32, to + 64 * g, [&](Float16 q) { return mul(step, q); });
    }
  });
}

template <int M>
inline void gemm_tile(const float* w, std::int64_t k, const float* x, std::int64_t x_stride, float* acc,
                      std::int64_t acc_stride) {
  Float16 sum[M];
  for (int m = 0; m < M; ++m) sum[m] = load(acc + m * acc_stride);
  for (std::int64_t i = 0; i < k; ++i) {
    const Float16 column = load(w + i * kPanelRows);
    for (int m = 0; m < M; ++m) sum[m] = fma(column, set1(x[m * x_stride + i]), sum[m]);
  }
  for (int m = 0; m < M; ++m) store(acc + m * acc_stride, sum[m]);
}

template <int kFirst, int... kRest>
inline void gemm_rows(const float* w, std::int64_t k, const float* x, std::int64_t x_stride,
                      std::int64_t rows, float* acc, std::int64_t acc_stride, std::int64_t row,
                      RowCounts<kFirst, kRest...>) {
  for (; row + kFirst <= rows; row += kFirst)
    gemm_tile<kFirst>(w, k, x + row * x_stride, x_stride, acc + row * acc_stride, acc_stride);
  if constexpr (sizeof...(kRest) > 0)
    gemm_rows(w, k, x, x_stride, rows, acc, acc_stride, row, RowCounts<kRest...>());
}

void gemm(const float* w, std::int64_t k, const float* x, std::int64_t x_stride, std::int64_t rows,
          float* acc, std::int64_t acc_stride) noexcept {
  gemm_rows(w, k, x, x_stride, rows, acc, acc_stride, 0, GemmRows());
}

constexpr MatmulRow tuned_row(const char* isa) {
  return {.isa = isa,
          .q4_0 = &dot_panel<Q4_0>,
          .q4_1 = &dot_panel<Q4_1>,
          .q5_0 = &dot_panel<Q5_0>,
          .q8_0 = &dot_panel<Q8_0>,
          .q4_k = &dot_panel<Q4K>,
          .q5_k = &dot_panel<Q5K>,
          .q6_k = &dot_panel<Q6K>,
          .decode_f16 = &decode_f16,
          .decode_bf16 = &decode_bf16,
          .decode_q4_0 = &decode_q4_0,
          .decode_q4_1 = &decode_q4_1,
          .decode_q5_0 = &decode_q5_0,
          .decode_q8_0 = &decode_q8_0,
          .decode_q4_k = &decode_q4_k,
          .decode_q5_k = &decode_q5_k,
          .decode_q6_k = &decode_q6_k,
          .gemm = &gemm};
}

}  // namespace
}  // namespace kvtide
