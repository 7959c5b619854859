// half_words.avx2.h: sixteen rows of f16 numbers, word by word, in 256-bit registers. Specification: lanes_by_one.inl.
#pragma once

#include <cstddef>

#include "kernels/lanes.avx2.h"

namespace kvtide {
namespace {

struct HalfWords {
  alignas(64) std::uint16_t words[32 * kLanes];
};
// Half of them, of eight rows and from word 16 * half on, is [word of eight][word / 8][row].
inline const std::uint16_t* eight_rows(const HalfWords& a, int word, int below) {
  return a.words + (word / 16 * 2 + below) * 128 + word % 8 * 16 + word / 8 % 2 * 8;
}
inline Lanes load(const HalfWords& a, int word) {
  const auto eight = [&](int below) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(eight_rows(a, word, below))));
  };
  return {eight(0), eight(1)};
}
inline void transpose_eight(const std::byte* rows, std::int64_t stride, std::uint16_t* out) {
  __m256i a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows + i * stride));
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi16(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      a[i + 2 * j] = _mm256_unpacklo_epi32(b[i + j], b[i + j + 2]);
      a[i + 2 * j + 1] = _mm256_unpackhi_epi32(b[i + j], b[i + j + 2]);
    }
  // a[4 g + k] holds in 128-bit lane l words 8 l + 2 k and the next of rows 4 g to 4 g + 3.
  for (int k = 0; k < 4; ++k) {
    auto* target = reinterpret_cast<__m256i*>(out + 2 * k * 16);
    _mm256_store_si256(target, _mm256_unpacklo_epi64(a[k], a[k + 4]));
    _mm256_store_si256(target + 1, _mm256_unpackhi_epi64(a[k], a[k + 4]));
  }
}
inline void transpose(const std::byte* rows, std::int64_t stride, HalfWords& out) {
  for (int part = 0; part < 4; ++part)
    transpose_eight(rows + part % 2 * 8 * stride + part / 2 * 32, stride, out.words + part * 128);
}

}  // namespace
}  // namespace kvtide
