// lanes.avx512.h: sixteen f32 lanes in one 512-bit register. Specification: lanes.scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/bytes.avx2.h"

namespace kvtide {
namespace {

constexpr int kLanes = 16;
constexpr int kMixQueries = 4;
constexpr int kMixVectors = 4;

struct Lanes {
  __m512 v;
};

inline Lanes set1(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Lanes load(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Lanes load(const std::int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline Lanes load_nibbles(const std::uint8_t* p, int shift) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(nibbles(p, shift)))};
}
inline float from_half(std::uint16_t bits) { return _cvtsh_ss(bits); }
inline void store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
inline void store(std::uint16_t* p, Lanes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Lanes add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes sub(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes mul(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes div(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Lanes abs(Lanes a) { return {_mm512_abs_ps(a.v)}; }
inline Lanes round(Lanes a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Lanes select_less(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
inline Lanes pow2(Lanes a) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvttps_epi32(a.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}
inline Lanes times_pow2_unless_less(Lanes a, Lanes b, Lanes x, Lanes n) {
  return {_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ), x.v, n.v)};
}
inline void store_i8(std::int8_t* p, Lanes a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a.v)));
}

template <int Step>
inline Lanes swap(Lanes a) {
  if constexpr (Step == 8) return {_mm512_shuffle_f32x4(a.v, a.v, 0x4e)};
  if constexpr (Step == 4) return {_mm512_shuffle_f32x4(a.v, a.v, 0xb1)};
  return {_mm512_permute_ps(a.v, Step == 2 ? 0x4e : 0xb1)};
}

inline float reduce_add(Lanes a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
inline float reduce_max(Lanes a) { return _mm512_reduce_max_ps(a.v); }

// Sixteen vectors come together in four rounds of "put halves side by side and join", in the order of reduce_add.
template <class Join>
inline __m512 reduce16(const Lanes a[16], Join join) {
  __m512 b[8], c[4], d[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    b[i] = join(_mm512_shuffle_f32x4(a[2 * i].v, a[2 * i + 1].v, 0x44),
                _mm512_shuffle_f32x4(a[2 * i].v, a[2 * i + 1].v, 0xee));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    c[i] = join(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),
                _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd));
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512d x = _mm512_castps_pd(c[2 * i]), y = _mm512_castps_pd(c[2 * i + 1]);
    d[i] = join(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  }
  const __m512 e = join(_mm512_shuffle_ps(d[0], d[1], 0x88), _mm512_shuffle_ps(d[0], d[1], 0xdd));
  // Lane 4 g + j now holds vector g + 4 j: 128-bit group g of every c[j].
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_ps(order, e);
}
inline Lanes reduce_add16(const Lanes a[16]) {
  return {reduce16(a, [](__m512 x, __m512 y) { return _mm512_add_ps(x, y); })};
}
inline Lanes reduce_max16(const Lanes a[16]) {
  return {reduce16(a, [](__m512 x, __m512 y) { return _mm512_max_ps(x, y); })};
}

inline Lanes dot16(const float* query, const float* keys, int stride, int dim) {
  Lanes sum[16];
  for (int key = 0; key < 16; ++key) sum[key] = set1(0.0f);
  for (int d = 0; d < dim; d += 16) {
    const Lanes q = load(query + d);
    for (int key = 0; key < 16; ++key) sum[key] = fma(q, load(keys + key * stride + d), sum[key]);
  }
  return reduce_add16(sum);
}

constexpr int kPairQueries = 6;
constexpr int kWordQueries = 6;
constexpr int kPairVectors = 4;
constexpr int kProbeChains = 12;
#if defined(__AVX512BF16__) && !defined(__AMX_TILE__)
constexpr int kPairWords = 1;
#else
// Processors with tiles begin a product of bf16 pairs in every second cycle, and two steps in every one.
constexpr int kPairWords = 2;
#endif
constexpr int kFewPairQueries = 8, kFewByteQueries = 8;

struct Pairs {
  __m512i v;
};

inline Pairs load(const std::uint32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store(std::uint32_t* p, Pairs a) { _mm512_storeu_si512(p, a.v); }
#ifdef __AVX512BF16__
inline Pairs join_pairs(Lanes a, Lanes b) {
  return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b.v, a.v))};
}
// The instruction multiplies and adds the second numbers first, exactly as lanes.scalar.h says; it takes
// denormal numbers for zeros, which callers keep away.
inline Lanes dot_pairs(Lanes sum, std::uint32_t query, Pairs a) {
  const __m512i q = _mm512_set1_epi32(static_cast<int>(query));
  return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(q), reinterpret_cast<__m512bh>(a.v))};
}
inline Pairs zip_pairs(Lanes a, Lanes b) {
  const __m512i side_by_side = join_pairs(a, b).v;
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  // Word 2 i is a's word i, word 2 i + 1 is b's, which is word 16 + i.
  const __m512i order =
      _mm512_or_si512(low, _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(16)), 16));
  return {_mm512_permutexvar_epi16(order, side_by_side)};
}
#else
// bf16 bits in the low half of every dword.
inline __m512i to_bf16(Lanes a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  return _mm512_srli_epi32(_mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000)), 16);
}
inline Pairs join_pairs(Lanes a, Lanes b) {
  return {_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(to_bf16(a))),
                             _mm512_cvtepi32_epi16(to_bf16(b)), 1)};
}
inline Pairs zip_pairs(Lanes a, Lanes b) {
  return {_mm512_or_si512(to_bf16(a), _mm512_slli_epi32(to_bf16(b), 16))};
}
#endif
inline Lanes first_of_pairs(Pairs a) { return {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))}; }
inline Lanes second_of_pairs(Pairs a) {
  return {_mm512_castsi512_ps(_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}
inline void transpose(Pairs a[kLanes]) {
  __m512i b[16], c[16];
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i].v, a[i + 1].v);
    b[i + 1] = _mm512_unpackhi_epi32(a[i].v, a[i + 1].v);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      c[i + 2 * j] = _mm512_unpacklo_epi64(b[i + j], b[i + j + 2]);
      c[i + 2 * j + 1] = _mm512_unpackhi_epi64(b[i + j], b[i + j + 2]);
    }
  // c[4 g + k] holds in 128-bit lane l column 4 l + k of rows 4 g to 4 g + 3.
  for (int k = 0; k < 4; ++k) {
    const __m512i x = _mm512_shuffle_i32x4(c[k], c[k + 4], 0x44),
                  y = _mm512_shuffle_i32x4(c[k], c[k + 4], 0xee);
    const __m512i z = _mm512_shuffle_i32x4(c[k + 8], c[k + 12], 0x44),
                  w = _mm512_shuffle_i32x4(c[k + 8], c[k + 12], 0xee);
    a[k].v = _mm512_shuffle_i32x4(x, z, 0x88);
    a[k + 4].v = _mm512_shuffle_i32x4(x, z, 0xdd);
    a[k + 8].v = _mm512_shuffle_i32x4(y, w, 0x88);
    a[k + 12].v = _mm512_shuffle_i32x4(y, w, 0xdd);
  }
}

// Not __m512i, which g++ takes for eight longs: it would copy every sum twice to see it as sixteen integers.
struct Ints {
  std::int32_t v __attribute__((vector_size(64)));
};
inline Ints add(Ints a, Ints b) { return {a.v + b.v}; }

inline Ints dot_pairs(Ints sum, std::uint32_t query, Pairs a) {
  const __m512i q = _mm512_set1_epi32(static_cast<int>(query));
  const __m512i next = _mm512_dpwssd_epi32(reinterpret_cast<__m512i>(sum.v), q, a.v);
  return {reinterpret_cast<decltype(sum.v)>(next)};
}
inline Lanes to_lanes(Ints a) { return {_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(a.v))}; }
inline Pairs join_bytes(Bytes a, Bytes b) {
  return {_mm512_inserti64x4(_mm512_castsi256_si512(a.v), b.v, 1)};
}
inline Pairs even_bytes(Pairs a) { return {_mm512_srai_epi16(_mm512_slli_epi16(a.v, 8), 8)}; }
inline Pairs odd_bytes(Pairs a) { return {_mm512_srai_epi16(a.v, 8)}; }
inline void zip_bytes(Bytes a, Bytes b, Pairs (&out)[2]) {
  // Quarters 0, 2, 1, 3: unpacking works on the lower and the upper half of each 128 bits.
  const __m256i x = _mm256_permute4x64_epi64(a.v, 0xd8), y = _mm256_permute4x64_epi64(b.v, 0xd8);
  out[0].v = _mm512_cvtepi8_epi16(_mm256_unpacklo_epi8(x, y));
  out[1].v = _mm512_cvtepi8_epi16(_mm256_unpackhi_epi8(x, y));
}
inline void store_words(std::uint32_t* p, Lanes a) {
  const __m512i bits = _mm512_castps_si512(_mm512_add_ps(a.v, _mm512_set1_ps(0x1.8p23f)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(bits));
}
inline Lanes max_bits(Lanes a, Lanes b) {
  return {_mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v)))};
}
inline float reduce_max_bits(Lanes a) {
  return _mm_cvtss_f32(_mm_castsi128_ps(
      _mm_cvtsi32_si128(static_cast<int>(_mm512_reduce_max_epu32(_mm512_castps_si512(a.v))))));
}
inline Lanes reduce_max_bits16(const Lanes a[kLanes]) {
  return {reduce16(a, [](__m512 x, __m512 y) { return max_bits({x}, {y}).v; })};
}

}  // namespace
}  // namespace kvtide
