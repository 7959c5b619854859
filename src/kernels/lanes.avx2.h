// lanes.avx2.h: sixteen f32 lanes in two 256-bit registers (AVX2, FMA, F16C). Specification: lanes.scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/bytes.avx2.h"

namespace kvtide {
namespace {

constexpr int kLanes = 16;
constexpr int kMixQueries = 2;
constexpr int kMixVectors = 2;

struct Lanes {
  __m256 lo, hi;
};

inline Lanes set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Lanes load(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Lanes load(const std::int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline Lanes load_nibbles(const std::uint8_t* p, int shift) {
  const __m128i bytes = nibbles(p, shift);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline float from_half(std::uint16_t bits) { return _cvtsh_ss(bits); }
inline void store(float* p, Lanes a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store(std::uint16_t* p, Lanes a) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, kNearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, kNearest));
}
inline Lanes add(Lanes a, Lanes b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Lanes sub(Lanes a, Lanes b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Lanes mul(Lanes a, Lanes b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Lanes div(Lanes a, Lanes b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Lanes max(Lanes a, Lanes b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline Lanes abs(Lanes a) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask)};
}
inline Lanes round(Lanes a) {
  const Lanes magic = set1(0x1.8p23f);
  return sub(add(a, magic), magic);
}
inline Lanes select_less(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
inline __m256 pow2_half(__m256 a) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvttps_epi32(a), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
inline Lanes pow2(Lanes a) { return {pow2_half(a.lo), pow2_half(a.hi)}; }
inline Lanes times_pow2_unless_less(Lanes a, Lanes b, Lanes x, Lanes n) {
  return select_less(a, b, set1(0.0f), mul(x, pow2(n)));
}
inline void store_i8(std::int8_t* p, Lanes a) {
  const __m256i words = _mm256_permute4x64_epi64(
      _mm256_packs_epi32(_mm256_cvttps_epi32(a.lo), _mm256_cvttps_epi32(a.hi)), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

template <int Step>
inline __m256 swap_half(__m256 a) {
  if constexpr (Step == 4) return _mm256_permute2f128_ps(a, a, 0x01);
  return _mm256_permute_ps(a, Step == 2 ? 0x4e : 0xb1);
}
template <int Step>
inline Lanes swap(Lanes a) {
  if constexpr (Step == 8) return {a.hi, a.lo};
  return {swap_half<Step>(a.lo), swap_half<Step>(a.hi)};
}

inline float reduce_add(Lanes a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
inline float reduce_max(Lanes a) {
  const __m256 m8 = _mm256_max_ps(a.lo, a.hi);
  const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

// What eight vectors come to, whose halves were already joined, in the order of reduce_add and reduce_max.
template <class Join>
inline __m256 reduce8(const __m256 a[8], Join join) {
  __m256 b[4], c[2];
  for (int i = 0; i < 4; ++i)
    b[i] = join(_mm256_permute2f128_ps(a[i], a[i + 4], 0x20), _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  for (int i = 0; i < 2; ++i) {
    const __m256d x = _mm256_castps_pd(b[i]), y = _mm256_castps_pd(b[i + 2]);
    c[i] = join(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
  }
  // Lanes of a 128-bit half: vectors 0, 2, 1, 3 (and 4, 6, 5, 7).
  const __m256 d = join(_mm256_shuffle_ps(c[0], c[1], 0x88), _mm256_shuffle_ps(c[0], c[1], 0xdd));
  return _mm256_permute_ps(d, 0xd8);
}
inline __m256 add_half(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
inline __m256 max_half(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
inline __m256 max_bits_half(__m256 a, __m256 b) {
  return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}
template <class Join>
inline Lanes reduce16(const Lanes a[kLanes], Join join) {
  __m256 folded[kLanes];
  for (int i = 0; i < kLanes; ++i) folded[i] = join(a[i].lo, a[i].hi);
  return {reduce8(folded, join), reduce8(folded + 8, join)};
}
inline Lanes reduce_add16(const Lanes a[kLanes]) { return reduce16(a, add_half); }
inline Lanes reduce_max16(const Lanes a[kLanes]) { return reduce16(a, max_half); }
inline Lanes reduce_max_bits16(const Lanes a[kLanes]) { return reduce16(a, max_bits_half); }

inline Lanes dot16(const float* query, const float* keys, int stride, int dim) {
  __m256 folded[16];
  for (int key = 0; key < 16; key += 4) {
    __m256 lo[4], hi[4];
    for (int i = 0; i < 4; ++i) lo[i] = hi[i] = _mm256_setzero_ps();
    for (int d = 0; d < dim; d += 16) {
      const __m256 q0 = _mm256_loadu_ps(query + d), q1 = _mm256_loadu_ps(query + d + 8);
      for (int i = 0; i < 4; ++i) {
        const float* k = keys + (key + i) * stride + d;
        lo[i] = _mm256_fmadd_ps(q0, _mm256_loadu_ps(k), lo[i]);
        hi[i] = _mm256_fmadd_ps(q1, _mm256_loadu_ps(k + 8), hi[i]);
      }
    }
    for (int i = 0; i < 4; ++i) folded[key + i] = _mm256_add_ps(lo[i], hi[i]);
  }
  return {reduce8(folded, add_half), reduce8(folded + 8, add_half)};
}

constexpr int kPairQueries = 6;
constexpr int kWordQueries = 2;
constexpr int kPairVectors = 1;
constexpr int kPairWords = 2;
constexpr int kProbeChains = 6;
constexpr int kFewPairQueries = 8, kFewByteQueries = 8;

struct Pairs {
  __m256i lo, hi;
};

// bf16 bits in the low half of every dword.
inline __m256i to_bf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
inline Pairs load(const std::uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline void store(std::uint32_t* p, Pairs a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
inline Pairs zip_pairs(Lanes a, Lanes b) {
  return {_mm256_or_si256(to_bf16(a.lo), _mm256_slli_epi32(to_bf16(b.lo), 16)),
          _mm256_or_si256(to_bf16(a.hi), _mm256_slli_epi32(to_bf16(b.hi), 16))};
}
inline __m256i join_half(Lanes a) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(to_bf16(a.lo), to_bf16(a.hi)), 0xd8);
}
inline Pairs join_pairs(Lanes a, Lanes b) { return {join_half(a), join_half(b)}; }
inline Lanes first_of_pairs(Pairs a) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(a.lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(a.hi, 16))};
}
inline Lanes second_of_pairs(Pairs a) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(a.lo, high)),
          _mm256_castsi256_ps(_mm256_and_si256(a.hi, high))};
}
inline void transpose8(__m256i a[8]) {
  __m256i b[8], c[8];
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      c[i + 2 * j] = _mm256_unpacklo_epi64(b[i + j], b[i + j + 2]);
      c[i + 2 * j + 1] = _mm256_unpackhi_epi64(b[i + j], b[i + j + 2]);
    }
  for (int i = 0; i < 4; ++i) {
    a[i] = _mm256_permute2x128_si256(c[i], c[i + 4], 0x20);
    a[i + 4] = _mm256_permute2x128_si256(c[i], c[i + 4], 0x31);
  }
}
inline void transpose(Pairs a[kLanes]) {
  __m256i quarter[4][8];
  for (int i = 0; i < 8; ++i) {
    quarter[0][i] = a[i].lo;
    quarter[1][i] = a[i].hi;
    quarter[2][i] = a[i + 8].lo;
    quarter[3][i] = a[i + 8].hi;
  }
  for (auto& q : quarter) transpose8(q);
  for (int i = 0; i < 8; ++i) {
    a[i] = {quarter[0][i], quarter[2][i]};
    a[i + 8] = {quarter[1][i], quarter[3][i]};
  }
}

struct Ints {
  __m256i lo, hi;
};
inline Ints add(Ints a, Ints b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }

inline Ints dot_pairs(Ints sum, std::uint32_t query, Pairs a) {
  const __m256i q = _mm256_set1_epi32(static_cast<int>(query));
  return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(q, a.lo)),
          _mm256_add_epi32(sum.hi, _mm256_madd_epi16(q, a.hi))};
}
inline Lanes to_lanes(Ints a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline Pairs join_bytes(Bytes a, Bytes b) { return {a.v, b.v}; }
inline Pairs even_bytes(Pairs a) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(a.lo, 8), 8), _mm256_srai_epi16(_mm256_slli_epi16(a.hi, 8), 8)};
}
inline Pairs odd_bytes(Pairs a) { return {_mm256_srai_epi16(a.lo, 8), _mm256_srai_epi16(a.hi, 8)}; }
inline Pairs widen(__m256i bytes) {
  return {_mm256_cvtepi8_epi16(_mm256_castsi256_si128(bytes)),
          _mm256_cvtepi8_epi16(_mm256_extracti128_si256(bytes, 1))};
}
inline void zip_bytes(Bytes a, Bytes b, Pairs (&out)[2]) {
  // Quarters 0, 2, 1, 3: unpacking works on the lower and the upper half of each 128 bits.
  const __m256i x = _mm256_permute4x64_epi64(a.v, 0xd8), y = _mm256_permute4x64_epi64(b.v, 0xd8);
  out[0] = widen(_mm256_unpacklo_epi8(x, y));
  out[1] = widen(_mm256_unpackhi_epi8(x, y));
}
inline void store_words(std::uint32_t* p, Lanes a) {
  const Lanes bits = add(a, set1(0x1.8p23f));
  const __m256i low = _mm256_set1_epi32(0xffff);
  const __m256i words = _mm256_packus_epi32(_mm256_and_si256(_mm256_castps_si256(bits.lo), low),
                                            _mm256_and_si256(_mm256_castps_si256(bits.hi), low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xd8));
}
inline Lanes max_bits(Lanes a, Lanes b) { return {max_bits_half(a.lo, b.lo), max_bits_half(a.hi, b.hi)}; }
inline float reduce_max_bits(Lanes a) {
  const __m256i m8 = _mm256_castps_si256(max_bits_half(a.lo, a.hi));
  const __m128i m4 = _mm_max_epu32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
  const __m128i m2 = _mm_max_epu32(m4, _mm_shuffle_epi32(m4, 0x4e));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epu32(m2, _mm_shuffle_epi32(m2, 0xb1))));
}

}  // namespace
}  // namespace kvtide
