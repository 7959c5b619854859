// matmul.avx2.cpp: matrix products with AVX2 and FMA. Two registers of eight lanes hold the sixteen rows of a
// panel.
//
// Quants below 64 are multiplied as unsigned by signed bytes (pairs fit in 16 bits); 8-bit quants move their
// sign to the activations first.
#include <immintrin.h>

#include "kernels/matmul_kernel.h"

namespace kvtide {
namespace {

// Sixteen lanes of 32-bit integers or floats; rows 0..7 and 8..15.
struct Int16 {
  __m256i lo, hi;
};
struct Float16 {
  __m256 lo, hi;
};

inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline Int16 bytes64(const std::uint8_t* p) { return {load32(p), load32(p + 32)}; }
inline Float16 half16(const Half* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Float16 to_float(Int16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline Float16 mul(Float16 a, Float16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Float16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Float16 fma(Float16 a, Float16 b, Float16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Int16 set1_int(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Int16 mullo(Int16 a, Int16 b) {
  return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}
inline Int16 add(Int16 a, Int16 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }

inline __m256i broadcast4(const std::int8_t* x) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}
// sum + the four-byte products of unsigned w (at most 127) and signed x.
inline __m256i dot(__m256i sum, __m256i w, __m256i x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
}
inline __m256i dot_signed(__m256i sum, __m256i w, __m256i x) {
  return dot(sum, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
inline __m256i low(__m256i raw) { return _mm256_and_si256(raw, _mm256_set1_epi8(15)); }
inline __m256i high(__m256i raw) { return _mm256_and_si256(_mm256_srli_epi16(raw, 4), _mm256_set1_epi8(15)); }

// Bit b of 32 as 16 in byte b.
inline __m256i bit_to_16(const std::uint8_t* bits) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, bits, 4);
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(four), _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2,
                                                2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  const __m256i select = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, select), select);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

// Quants of group g (0..7) of a block, offset included.
inline Int16 nibble_group(const std::uint8_t (*q)[64], int g) {
  const Int16 raw = bytes64(q[g % 4]);
  return g < 4 ? Int16{low(raw.lo), low(raw.hi)} : Int16{high(raw.lo), high(raw.hi)};
}
inline Int16 five_bit_group(const PanelQ5_0& p, int g) {
  const Int16 w = nibble_group(p.q, g);
  return {_mm256_or_si256(w.lo, bit_to_16(p.high[g])), _mm256_or_si256(w.hi, bit_to_16(p.high[g] + 4))};
}
inline __m256i two_bits(__m256i raw, int i) {  // bits 2 i .. 2 i + 1 of every byte, at bits 4 .. 5
  const __m256i moved = i < 2 ? _mm256_sll_epi16(raw, _mm_cvtsi32_si128(4 - 2 * i))
                              : _mm256_srl_epi16(raw, _mm_cvtsi32_si128(2 * i - 4));
  return _mm256_and_si256(moved, _mm256_set1_epi8(0x30));
}
inline Int16 six_bit_group(const PanelQ6K::Sub& sub, int g) {
  const Int16 w = nibble_group(sub.q, g), raw = bytes64(sub.high[g / 4]);
  return {_mm256_or_si256(w.lo, two_bits(raw.lo, g % 4)), _mm256_or_si256(w.hi, two_bits(raw.hi, g % 4))};
}
inline Int16 bytes_to_int(const std::uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Int16 bytes_to_int(const std::int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Float16 negated(Float16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}

struct XView {
  const std::int8_t* q;
  const float* d;
  const float* d_sum;
  const std::int32_t* sum16;
  std::int64_t k, blocks;

  const std::int8_t* quants(int m, std::int64_t b) const { return q + m * k + b * 32; }
  int sum(int m, std::int64_t b, int half) const { return sum16[(m * blocks + b) * 2 + half]; }
  int sum(int m, std::int64_t b) const { return sum(m, b, 0) + sum(m, b, 1); }
};

template <int M>
inline void fold(const Int16 sum[M], Float16 d, const XView& x, std::int64_t b, Float16 acc[M]) {
  for (int m = 0; m < M; ++m) acc[m] = fma(to_float(sum[m]), mul(d, set1(x.d[m * x.blocks + b])), acc[m]);
}
template <int M>
inline void fold_mass(Float16 offset, const XView& x, std::int64_t b, Float16 acc[M]) {
  for (int m = 0; m < M; ++m) acc[m] = fma(offset, set1(x.d_sum[m * x.blocks + b]), acc[m]);
}

template <int M, class Group>
inline void dot_groups(int first, int last, const XView& x, std::int64_t b, Int16 sum[M], Group group) {
  for (int g = first; g < last; ++g) {
    const Int16 w = group(g);
    for (int m = 0; m < M; ++m) {
      const __m256i four = broadcast4(x.quants(m, b) + 4 * g);
      sum[m] = {dot(sum[m].lo, w.lo, four), dot(sum[m].hi, w.hi, four)};
    }
  }
}

struct Q4_0 {
  using Panel = PanelQ4_0;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, Float16 acc[M]) {
    Int16 sum[M];
    for (int m = 0; m < M; ++m) sum[m] = set1_int(-8 * x.sum(m, b));
    dot_groups<M>(0, 8, x, b, sum, [&](int g) { return nibble_group(p.q, g); });
    fold<M>(sum, half16(p.d), x, b, acc);
  }
};

struct Q4_1 {
  using Panel = PanelQ4_1;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, Float16 acc[M]) {
    Int16 sum[M];
    for (int m = 0; m < M; ++m) sum[m] = set1_int(0);
    dot_groups<M>(0, 8, x, b, sum, [&](int g) { return nibble_group(p.q, g); });
    fold<M>(sum, half16(p.d), x, b, acc);
    fold_mass<M>(half16(p.m), x, b, acc);
  }
};

struct Q5_0 {
  using Panel = PanelQ5_0;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, Float16 acc[M]) {
    Int16 sum[M];
    for (int m = 0; m < M; ++m) sum[m] = set1_int(-16 * x.sum(m, b));
    dot_groups<M>(0, 8, x, b, sum, [&](int g) { return five_bit_group(p, g); });
    fold<M>(sum, half16(p.d), x, b, acc);
  }
};

struct Q8_0 {
  using Panel = PanelQ8_0;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, Float16 acc[M]) {
    Int16 sum[M];
    for (int m = 0; m < M; ++m) sum[m] = set1_int(0);
    for (int g = 0; g < 8; ++g) {
      const __m256i lo = load32(p.q[g]), hi = load32(p.q[g] + 32);
      for (int m = 0; m < M; ++m) {
        const __m256i four = broadcast4(x.quants(m, b) + 4 * g);
        sum[m] = {dot_signed(sum[m].lo, lo, four), dot_signed(sum[m].hi, hi, four)};
      }
    }
    fold<M>(sum, half16(p.d), x, b, acc);
  }
};

struct Q4K {
  using Panel = PanelQ4K;
  static constexpr int kSubs = 8;
  template <int M>
  static void step(const Panel& p, int s, const XView& x, std::int64_t b, Float16 acc[M]) {
    const auto& sub = p.sub[s];
    Int16 sum[M];
    for (int m = 0; m < M; ++m) sum[m] = set1_int(0);
    dot_groups<M>(0, 8, x, b, sum, [&](int g) { return nibble_group(sub.q, g); });
    const Int16 scale = bytes_to_int(sub.scale);
    for (int m = 0; m < M; ++m) sum[m] = mullo(sum[m], scale);
    fold<M>(sum, half16(p.d), x, b, acc);
    fold_mass<M>(negated(mul(half16(p.dmin), to_float(bytes_to_int(sub.min)))), x, b, acc);
  }
};

struct Q6K {
  using Panel = PanelQ6K;
  static constexpr int kSubs = 8;
  template <int M>
  static void step(const Panel& p, int s, const XView& x, std::int64_t b, Float16 acc[M]) {
    const auto& sub = p.sub[s];
    Int16 total[M];
    for (int h = 0; h < 2; ++h) {
      Int16 sum[M];
      for (int m = 0; m < M; ++m) sum[m] = set1_int(-32 * x.sum(m, b, h));
      dot_groups<M>(4 * h, 4 * h + 4, x, b, sum, [&](int g) { return six_bit_group(sub, g); });
      const Int16 scale = bytes_to_int(sub.scale[h]);
      for (int m = 0; m < M; ++m) {
        const Int16 scaled = mullo(sum[m], scale);
        total[m] = h == 0 ? scaled : add(total[m], scaled);
      }
    }
    fold<M>(total, half16(p.d), x, b, acc);
  }
};

inline void store_columns(float* y, Float16 a, int columns) {
  if (columns == kPanelRows) {
    _mm256_storeu_ps(y, a.lo);
    _mm256_storeu_ps(y + 8, a.hi);
    return;
  }
  float all[kPanelRows];
  _mm256_storeu_ps(all, a.lo);
  _mm256_storeu_ps(all + 8, a.hi);
  for (int i = 0; i < columns; ++i) y[i] = all[i];
}

template <class Type, int M>
inline void tile(const typename Type::Panel* panel, const XView& x, const PanelOut& out, std::int64_t row) {
  Float16 acc[M];
  for (int m = 0; m < M; ++m) acc[m] = set1(0.0f);
  for (std::int64_t b = 0; b < x.blocks; b += Type::kSubs)
    for (int s = 0; s < Type::kSubs; ++s) Type::template step<M>(panel[b / Type::kSubs], s, x, b + s, acc);
  for (int m = 0; m < M; ++m) store_columns(out.y + (row + m) * out.stride, acc[m], out.columns);
}

template <class Type>
void dot_panel(const std::byte* panel, const QuantRows& rows, const PanelOut& out) noexcept {
  const auto* blocks = reinterpret_cast<const typename Type::Panel*>(panel);
  const std::int64_t count = rows.k / 32;
  std::int64_t row = 0;
  const auto view = [&] {
    return XView{rows.q + row * rows.k,
                 rows.d + row * count,
                 rows.d_sum + row * count,
                 rows.sum16 + row * count * 2,
                 rows.k,
                 count};
  };
  for (; row + 2 <= rows.rows; row += 2) tile<Type, 2>(blocks, view(), out, row);
  if (row < rows.rows) tile<Type, 1>(blocks, view(), out, row);
}

// Stores the four elements of a group for all rows: out[c * 16 + row] = value(byte c of the row, as float).
template <class Value>
inline void spread(Int16 group, int offset, float* out, Value value) {
  const __m256i mask = _mm256_set1_epi32(255), shift = _mm256_set1_epi32(offset);
  for (int c = 0; c < 4; ++c) {
    const __m128i bits = _mm_cvtsi32_si128(8 * c);
    const Int16 quant{_mm256_sub_epi32(_mm256_and_si256(_mm256_srl_epi32(group.lo, bits), mask), shift),
                      _mm256_sub_epi32(_mm256_and_si256(_mm256_srl_epi32(group.hi, bits), mask), shift)};
    const Float16 result = value(to_float(quant));
    _mm256_storeu_ps(out + c * kPanelRows, result.lo);
    _mm256_storeu_ps(out + c * kPanelRows + 8, result.hi);
  }
}

// Decodes 32-element blocks [k0, k1): block(panel block, sub, out of 8 groups).
template <class Type, class Block>
inline void decode(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out, Block block) {
  for (std::int64_t b = k0 / 32; b < k1 / 32; ++b, out += 32 * kPanelRows)
    block(reinterpret_cast<const typename Type::Panel*>(panel)[b / Type::kSubs],
          static_cast<int>(b % Type::kSubs), out);
}

void decode_f16(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  const auto* in = reinterpret_cast<const Half*>(panel);
  for (std::int64_t k = k0; k < k1; ++k, out += kPanelRows) {
    const Float16 x = half16(in + k * kPanelRows);
    _mm256_storeu_ps(out, x.lo);
    _mm256_storeu_ps(out + 8, x.hi);
  }
}
void decode_bf16(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  const auto* in = reinterpret_cast<const std::uint16_t*>(panel);
  for (std::int64_t i = k0 * kPanelRows; i < k1 * kPanelRows; i += 8, out += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
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
      spread(nibble_group(p.q, g), 0, to + 64 * g, [&](Float16 q) {
        const Float16 scaled = mul(d, q);
        return Float16{_mm256_add_ps(scaled.lo, m.lo), _mm256_add_ps(scaled.hi, m.hi)};
      });
  });
}
void decode_q5_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q5_0>(panel, k0, k1, out, [](const PanelQ5_0& p, int, float* to) {
    const Float16 d = half16(p.d);
    for (int g = 0; g < 8; ++g)
      spread(five_bit_group(p, g), 16, to + 64 * g, [&](Float16 q) { return mul(d, q); });
  });
}
void decode_q8_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q8_0>(panel, k0, k1, out, [](const PanelQ8_0& p, int, float* to) {
    const Float16 d = half16(p.d);
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
    for (int g = 0; g < 8; ++g) {
      const Int16 w{_mm256_xor_si256(load32(p.q[g]), sign), _mm256_xor_si256(load32(p.q[g] + 32), sign)};
      spread(w, 128, to + 64 * g, [&](Float16 q) { return mul(d, q); });
    }
  });
}
void decode_q4_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q4K>(panel, k0, k1, out, [](const PanelQ4K& p, int s, float* to) {
    const auto& sub = p.sub[s];
    const Float16 step = mul(half16(p.d), to_float(bytes_to_int(sub.scale)));
    const Float16 offset = mul(half16(p.dmin), to_float(bytes_to_int(sub.min)));
    for (int g = 0; g < 8; ++g)
      spread(nibble_group(sub.q, g), 0, to + 64 * g, [&](Float16 q) {
        const Float16 scaled = mul(step, q);
        return Float16{_mm256_sub_ps(scaled.lo, offset.lo), _mm256_sub_ps(scaled.hi, offset.hi)};
      });
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
  for (int m = 0; m < M; ++m)
    sum[m] = {_mm256_loadu_ps(acc + m * acc_stride), _mm256_loadu_ps(acc + m * acc_stride + 8)};
  for (std::int64_t i = 0; i < k; ++i) {
    const Float16 column{_mm256_loadu_ps(w + i * kPanelRows), _mm256_loadu_ps(w + i * kPanelRows + 8)};
    for (int m = 0; m < M; ++m) sum[m] = fma(column, set1(x[m * x_stride + i]), sum[m]);
  }
  for (int m = 0; m < M; ++m) {
    _mm256_storeu_ps(acc + m * acc_stride, sum[m].lo);
    _mm256_storeu_ps(acc + m * acc_stride + 8, sum[m].hi);
  }
}

void gemm(const float* w, std::int64_t k, const float* x, std::int64_t x_stride, std::int64_t rows,
          float* acc, std::int64_t acc_stride) noexcept {
  std::int64_t row = 0;
  for (; row + 5 <= rows; row += 5)
    gemm_tile<5>(w, k, x + row * x_stride, x_stride, acc + row * acc_stride, acc_stride);
  for (; row < rows; ++row)
    gemm_tile<1>(w, k, x + row * x_stride, x_stride, acc + row * acc_stride, acc_stride);
}

}  // namespace

extern const MatmulRow kMatmulAvx2{.isa = "avx2",
                                   .q4_0 = &dot_panel<Q4_0>,
                                   .q4_1 = &dot_panel<Q4_1>,
                                   .q5_0 = &dot_panel<Q5_0>,
                                   .q8_0 = &dot_panel<Q8_0>,
                                   .q4_k = &dot_panel<Q4K>,
                                   .q6_k = &dot_panel<Q6K>,
                                   .decode_f16 = &decode_f16,
                                   .decode_bf16 = &decode_bf16,
                                   .decode_q4_0 = &decode_q4_0,
                                   .decode_q4_1 = &decode_q4_1,
                                   .decode_q5_0 = &decode_q5_0,
                                   .decode_q8_0 = &decode_q8_0,
                                   .decode_q4_k = &decode_q4_k,
                                   .decode_q6_k = &decode_q6_k,
                                   .gemm = &gemm};

}  // namespace kvtide
