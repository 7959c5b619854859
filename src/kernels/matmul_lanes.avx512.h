// matmul_lanes.avx512.h: the operations of matmul_tuned.inl with AVX-512 VNNI. A lane of a register is a row of the panel,
// so that an output is one lane of one accumulator from the first block to the last, whatever the number of rows in
// the call.
//
// VNNI multiplies unsigned weights by signed activations: quants stay with their offset, and the offset times
// the sum of the activations is taken off in integers, where it is exact.
#pragma once

#include <immintrin.h>

#include "kernels/matmul_kernel.h"

namespace kvtide {
namespace {

using Float16 = __m512;
// Sixteen integers, not __m512i: g++ 12 takes that for eight longs and copies arrays of it around every product.
using Int16 = int __attribute__((vector_size(64)));

constexpr int kByteOffset = 128;  // bytes_of: q + 128

inline __m512i wide(Int16 a) { return reinterpret_cast<__m512i>(a); }
inline Int16 ints(__m512i a) { return reinterpret_cast<Int16>(a); }

inline Float16 half16(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Float16 bf16_16(const std::uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Float16 load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Float16 a) { _mm512_storeu_ps(p, a); }
inline void store_columns(float* p, Float16 a, int columns) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << columns) - 1u), a);
}
inline Float16 to_float(Int16 a) { return _mm512_cvtepi32_ps(wide(a)); }
inline Float16 set1(float x) { return _mm512_set1_ps(x); }
inline Float16 mul(Float16 a, Float16 b) { return _mm512_mul_ps(a, b); }
inline Float16 add(Float16 a, Float16 b) { return _mm512_add_ps(a, b); }
inline Float16 subtract(Float16 a, Float16 b) { return _mm512_sub_ps(a, b); }
inline Float16 fma(Float16 a, Float16 b, Float16 c) { return _mm512_fmadd_ps(a, b, c); }
inline Float16 fnma(Float16 a, Float16 b, Float16 c) { return _mm512_fnmadd_ps(a, b, c); }

inline Int16 zero() { return Int16{}; }
inline Int16 every(std::int32_t x) { return ints(_mm512_set1_epi32(x)); }
template <int kBits>
inline Int16 shifted_left(Int16 a) {
  return ints(_mm512_slli_epi32(wide(a), kBits));
}
inline Int16 less(Int16 a, Int16 b) { return ints(_mm512_sub_epi32(wide(a), wide(b))); }
using Partial = Int16;
template <int kMost>
constexpr int kGroupsAtOnce = 8;
inline Partial begin_partial(Int16 sum) { return sum; }
inline Int16 end_partial(Int16, Partial part) { return part; }
inline Partial dot(Partial sum, Int16 w, const std::int8_t* x) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, x, 4);
  return ints(_mm512_dpbusd_epi32(wide(sum), wide(w), _mm512_set1_epi32(four)));
}
inline Int16 dot_bytes(Int16 sum, Int16 w, const std::int8_t* x) { return dot(sum, w, x); }
inline __m512i bytes64(const void* p) { return _mm512_loadu_si512(p); }
inline __m512i low(__m512i raw) { return _mm512_and_si512(raw, _mm512_set1_epi8(15)); }

inline Int16 nibble_group(const std::uint8_t (*q)[64], int g) {
  const __m512i raw = bytes64(q[g % 4]);
  return ints(g < 4 ? low(raw) : low(_mm512_srli_epi16(raw, 4)));
}
inline Int16 five_bit_group(const std::uint8_t (*q)[64], const std::uint8_t (*high)[8], int g) {
  std::uint64_t mask = 0;
  __builtin_memcpy(&mask, high[g], 8);
  const __m512i w = wide(nibble_group(q, g));
  return ints(_mm512_mask_add_epi8(w, mask, w, _mm512_set1_epi8(16)));
}
inline Int16 six_bit_group(const PanelQ6K::Sub& sub, int g) {  // bits 2 i .. 2 i + 1 go to bits 4 .. 5
  const __m512i raw = bytes64(sub.high[g / 4]);
  const int i = g % 4;
  const __m512i moved = i == 0   ? _mm512_slli_epi16(raw, 4)
                        : i == 1 ? _mm512_slli_epi16(raw, 2)
                        : i == 2 ? raw
                                 : _mm512_srli_epi16(raw, 2);
  return ints(_mm512_or_si512(wide(nibble_group(sub.q, g)), _mm512_and_si512(moved, _mm512_set1_epi8(0x30))));
}
inline Int16 bytes_of(const std::int8_t* q) {
  return ints(_mm512_xor_si512(bytes64(q), _mm512_set1_epi8(static_cast<char>(0x80))));
}
inline Int16 byte_group(const std::int8_t* q) { return bytes_of(q); }  // q + 128
inline Float16 byte_of(Int16 group, int c, int offset) {
  const __m512i value =
      _mm512_and_si512(_mm512_srl_epi32(wide(group), _mm_cvtsi32_si128(8 * c)), _mm512_set1_epi32(255));
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(value, _mm512_set1_epi32(offset)));
}
inline Int16 bytes_to_int(const std::uint8_t* p) {
  return ints(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Int16 bytes_to_int(const std::int8_t* p) {
  return ints(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

template <int... kRows>
struct RowCounts {};
using DotRows = RowCounts<8, 4, 2, 1>;
using GemmRows = RowCounts<8, 4, 1>;

}  // namespace
}  // namespace kvtide
