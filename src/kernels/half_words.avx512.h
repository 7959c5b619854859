// half_words.avx512.h: sixteen rows of f16 numbers, word by word, in 512-bit registers. Specification: lanes_by_one.inl.
#pragma once

#include <cstddef>

#include "kernels/lanes.avx512.h"

namespace kvtide {
namespace {

struct HalfWords {
  alignas(64) std::uint16_t words[32 * kLanes];
};
// They are [word / 16][word of eight][word / 8][row].
inline Lanes load(const HalfWords& a, int word) {
  return load(a.words + (word / 16 * 16 + word % 8 * 2 + word / 8 % 2) * kLanes);
}
inline void transpose(const std::byte* rows, std::int64_t stride, HalfWords& out) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(rows + i * stride);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi16(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi16(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      a[i + 2 * j] = _mm512_unpacklo_epi32(b[i + j], b[i + j + 2]);
      a[i + 2 * j + 1] = _mm512_unpackhi_epi32(b[i + j], b[i + j + 2]);
    }
  // a[4 g + k] holds in 128-bit lane l words 8 l + 2 k and the next of rows 4 g to 4 g + 3.
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (int k = 0; k < 4; ++k) {
    const __m512i even = _mm512_unpacklo_epi64(a[k], a[k + 4]), odd = _mm512_unpackhi_epi64(a[k], a[k + 4]),
                  even_below = _mm512_unpacklo_epi64(a[k + 8], a[k + 12]),
                  odd_below = _mm512_unpackhi_epi64(a[k + 8], a[k + 12]);
    std::uint16_t* target = out.words + 4 * k * kLanes;
    _mm512_store_si512(target, _mm512_permutex2var_epi64(even, low, even_below));
    _mm512_store_si512(target + 2 * kLanes, _mm512_permutex2var_epi64(odd, low, odd_below));
    _mm512_store_si512(target + 16 * kLanes, _mm512_permutex2var_epi64(even, high, even_below));
    _mm512_store_si512(target + 18 * kLanes, _mm512_permutex2var_epi64(odd, high, odd_below));
  }
}

}  // namespace
}  // namespace kvtide
