// matmul.avx512.cpp: matrix products with AVX-512 VNNI. A lane of a register is a row of the panel, so that
// an output is one lane of one accumulator from the first block to the last, whatever the number of rows in
// the call.
//
// VNNI multiplies unsigned weights by signed activations: quants stay with their offset, and the offset times
// the sum of the activations is taken off in integers, where it is exact.
#include <immintrin.h>

#include "kernels/matmul_kernel.h"
#include "kernels/matmul_view.inl"

namespace kvtide {
namespace {

using Float16 = __m512;
using Int16 = __m512i;

inline __m512 half16(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline __m512 bf16_16(const std::uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline __m512 load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, __m512 a) { _mm512_storeu_ps(p, a); }
inline __m512 to_float(__m512i a) { return _mm512_cvtepi32_ps(a); }
inline __m512 set1(float x) { return _mm512_set1_ps(x); }
inline __m512 mul(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
inline __m512 add(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
inline __m512 subtract(__m512 a, __m512 b) { return _mm512_sub_ps(a, b); }
inline __m512 fma(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
inline __m512i bytes64(const void* p) { return _mm512_loadu_si512(p); }
inline __m512i dot(__m512i sum, __m512i w, const std::int8_t* x) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, x, 4);
  return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
}
inline __m512i low(__m512i raw) { return _mm512_and_si512(raw, _mm512_set1_epi8(15)); }
inline __m512i high(__m512i raw) { return _mm512_and_si512(_mm512_srli_epi16(raw, 4), _mm512_set1_epi8(15)); }

// Sums of the eight groups of a block for M rows.
template <int M>
inline void dot_groups(const __m512i w[8], const XView& x, std::int64_t b, __m512i sum[M]) {
  for (int g = 0; g < 8; ++g)
    for (int m = 0; m < M; ++m) sum[m] = dot(sum[m], w[g], x.quants(m, b) + 4 * g);
}

template <int M>
inline void fold(const __m512i sum[M], __m512 d, const XView& x, std::int64_t b, __m512 acc[M]) {
  for (int m = 0; m < M; ++m) acc[m] = fma(to_float(sum[m]), mul(d, set1(x.step(m, b))), acc[m]);
}

template <int M, int kOffset>
inline void start(const XView& x, std::int64_t b, __m512i sum[M]) {
  for (int m = 0; m < M; ++m) sum[m] = _mm512_set1_epi32(-kOffset * x.sum(m, b));
}

inline void nibbles(const std::uint8_t (*q)[64], __m512i w[8]) {
  for (int g = 0; g < 4; ++g) {
    const __m512i raw = bytes64(q[g]);
    w[g] = low(raw);
    w[g + 4] = high(raw);
  }
}

// The same group by group, for decoding.
inline __m512i nibble_group(const std::uint8_t (*q)[64], int g) {
  const __m512i raw = bytes64(q[g % 4]);
  return g < 4 ? low(raw) : high(raw);
}
inline __m512i byte_group(const std::int8_t* q) {  // q + 128
  return _mm512_xor_si512(bytes64(q), _mm512_set1_epi8(static_cast<char>(0x80)));
}
inline __m512 byte_of(__m512i group, int c, int offset) {
  const __m512i value =
      _mm512_and_si512(_mm512_srl_epi32(group, _mm_cvtsi32_si128(8 * c)), _mm512_set1_epi32(255));
  return to_float(_mm512_sub_epi32(value, _mm512_set1_epi32(offset)));
}

struct Q4_0 {
  using Panel = PanelQ4_0;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, __m512 acc[M]) {
    __m512i w[8], sum[M];
    nibbles(p.q, w);
    start<M, 8>(x, b, sum);
    dot_groups<M>(w, x, b, sum);
    fold<M>(sum, half16(p.d), x, b, acc);
  }
};

struct Q4_1 {
  using Panel = PanelQ4_1;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, __m512 acc[M]) {
    __m512i w[8], sum[M];
    nibbles(p.q, w);
    for (int m = 0; m < M; ++m) sum[m] = _mm512_setzero_si512();
    dot_groups<M>(w, x, b, sum);
    fold<M>(sum, half16(p.d), x, b, acc);
    const __m512 offset = half16(p.m);
    for (int m = 0; m < M; ++m) acc[m] = fma(offset, set1(x.mass(m, b)), acc[m]);
  }
};

inline __m512i with_fifth_bit(__m512i w, const std::uint8_t* bits) {
  std::uint64_t mask = 0;
  __builtin_memcpy(&mask, bits, 8);
  return _mm512_mask_add_epi8(w, mask, w, _mm512_set1_epi8(16));
}

inline __m512i five_bit_group(const PanelQ5_0& p, int g) {
  return with_fifth_bit(nibble_group(p.q, g), p.high[g]);
}

struct Q5_0 {
  using Panel = PanelQ5_0;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, __m512 acc[M]) {
    __m512i w[8], sum[M];
    nibbles(p.q, w);
    for (int g = 0; g < 8; ++g) w[g] = with_fifth_bit(w[g], p.high[g]);
    start<M, 16>(x, b, sum);
    dot_groups<M>(w, x, b, sum);
    fold<M>(sum, half16(p.d), x, b, acc);
  }
};

struct Q8_0 {
  using Panel = PanelQ8_0;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, __m512 acc[M]) {
    __m512i sum[M];
    start<M, 128>(x, b, sum);
    for (int g = 0; g < 8; ++g) {
      const __m512i w = byte_group(p.q[g]);
      for (int m = 0; m < M; ++m) sum[m] = dot(sum[m], w, x.quants(m, b) + 4 * g);
    }
    fold<M>(sum, half16(p.d), x, b, acc);
  }
};

inline __m512i bytes_to_int(const std::uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m512i bytes_to_int(const std::int8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

struct Q4K {
  using Panel = PanelQ4K;
  static constexpr int kSubs = 8;
  template <int M>
  static void step(const Panel& p, int s, const XView& x, std::int64_t b, __m512 acc[M]) {
    const auto& sub = p.sub[s];
    __m512i w[8], sum[M];
    nibbles(sub.q, w);
    for (int m = 0; m < M; ++m) sum[m] = _mm512_setzero_si512();
    dot_groups<M>(w, x, b, sum);
    const __m512i scale = bytes_to_int(sub.scale);
    for (int m = 0; m < M; ++m) sum[m] = _mm512_mullo_epi32(sum[m], scale);
    fold<M>(sum, half16(p.d), x, b, acc);
    const __m512 offset =
        _mm512_xor_ps(mul(half16(p.dmin), to_float(bytes_to_int(sub.min))), _mm512_set1_ps(-0.0f));
    for (int m = 0; m < M; ++m) acc[m] = fma(offset, set1(x.mass(m, b)), acc[m]);
  }
};

inline void six_bits(const PanelQ6K::Sub& sub, __m512i w[8]) {
  nibbles(sub.q, w);
  const __m512i two = _mm512_set1_epi8(0x30);
  for (int h = 0; h < 2; ++h) {
    const __m512i raw = bytes64(sub.high[h]);
    w[4 * h] = _mm512_or_si512(w[4 * h], _mm512_and_si512(_mm512_slli_epi16(raw, 4), two));
    w[4 * h + 1] = _mm512_or_si512(w[4 * h + 1], _mm512_and_si512(_mm512_slli_epi16(raw, 2), two));
    w[4 * h + 2] = _mm512_or_si512(w[4 * h + 2], _mm512_and_si512(raw, two));
    w[4 * h + 3] = _mm512_or_si512(w[4 * h + 3], _mm512_and_si512(_mm512_srli_epi16(raw, 2), two));
  }
}

inline __m512i six_bit_group(const PanelQ6K::Sub& sub, int g) {  // bits 2 i .. 2 i + 1 go to bits 4 .. 5
  const __m512i raw = bytes64(sub.high[g / 4]);
  const int i = g % 4;
  const __m512i moved = i < 2 ? _mm512_sll_epi16(raw, _mm_cvtsi32_si128(4 - 2 * i))
                              : _mm512_srl_epi16(raw, _mm_cvtsi32_si128(2 * i - 4));
  return _mm512_or_si512(nibble_group(sub.q, g), _mm512_and_si512(moved, _mm512_set1_epi8(0x30)));
}

struct Q6K {
  using Panel = PanelQ6K;
  static constexpr int kSubs = 8;
  template <int M>
  static void step(const Panel& p, int s, const XView& x, std::int64_t b, __m512 acc[M]) {
    const auto& sub = p.sub[s];
    __m512i w[8], total[M];
    six_bits(sub, w);
    for (int h = 0; h < 2; ++h) {
      const __m512i scale = bytes_to_int(sub.scale[h]);
      for (int m = 0; m < M; ++m) {
        __m512i sum = _mm512_set1_epi32(-32 * x.sum(m, b, h));
        for (int g = 4 * h; g < 4 * h + 4; ++g) sum = dot(sum, w[g], x.quants(m, b) + 4 * g);
        const __m512i scaled = _mm512_mullo_epi32(sum, scale);
        total[m] = h == 0 ? scaled : _mm512_add_epi32(total[m], scaled);
      }
    }
    fold<M>(total, half16(p.d), x, b, acc);
  }
};

template <class Type, int M>
inline void tile(const typename Type::Panel* panel, const XView& x, const PanelOut& out, std::int64_t row) {
  __m512 acc[M];
  for (int m = 0; m < M; ++m) acc[m] = _mm512_setzero_ps();
  if constexpr (Type::kSubs == 1) {
    for (std::int64_t b = 0; b < x.blocks; ++b) Type::template step<M>(panel[b], 0, x, b, acc);
  } else {
    for (std::int64_t b = 0; b < x.blocks; b += Type::kSubs)
      for (int s = 0; s < Type::kSubs; ++s) Type::template step<M>(panel[b / Type::kSubs], s, x, b + s, acc);
  }
  const auto columns = static_cast<__mmask16>((1u << out.columns) - 1u);
  for (int m = 0; m < M; ++m) _mm512_mask_storeu_ps(out.y + (row + m) * out.stride, columns, acc[m]);
}

using DotRows = RowCounts<8, 4, 2, 1>;
using GemmRows = RowCounts<12, 4, 1>;

}  // namespace
}  // namespace kvtide

// Behind the block steps, on which it is written.
#include "kernels/matmul_tuned.inl"

namespace kvtide {

extern constinit const MatmulRow kMatmulAvx512{tuned_row("avx512")};

}  // namespace kvtide
