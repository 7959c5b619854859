// bytes.avx2.h: signed bytes of quantised rows in registers, for both sorts of x86 lanes. Specification: lanes.scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace kvtide {
namespace {

// Sixteen nibbles less 8: the low ones, or with a shift of 4 the high ones.
inline __m128i nibbles(const std::uint8_t* p, int shift) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i half = _mm_and_si128(_mm_srl_epi16(bytes, _mm_cvtsi32_si128(shift)), _mm_set1_epi8(15));
  return _mm_sub_epi8(half, _mm_set1_epi8(8));
}

// Instructions sum bytes without a sign only.
inline std::int32_t sum_i8(const std::int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i half = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(_mm_add_epi64(half, _mm_unpackhi_epi64(half, half))) - 16 * 128;
}

struct Bytes {
  __m256i v;
};
inline Bytes load_bytes(const std::int8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
inline Bytes load_nibbles(const std::uint8_t* p) {
  const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i shifted = _mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
  return {_mm256_sub_epi8(_mm256_and_si256(shifted, _mm256_set1_epi8(15)), _mm256_set1_epi8(8))};
}

}  // namespace
}  // namespace kvtide
