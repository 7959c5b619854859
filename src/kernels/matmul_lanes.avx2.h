// matmul_lanes.avx2.h: the operations of matmul_tuned.inl with AVX2 and FMA. Two registers of eight lanes hold the sixteen
// rows of a panel.
//
// Products of unsigned quants by signed bytes are summed in 16 bits as long as they fit, and then in 32. AVX-VNNI sums in
// 32 bits at once. 8-bit quants have a sign: AVX2 moves it to the activations, for AVX-VNNI they stay with an offset.
#pragma once

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
inline void store32(void* p, __m256i a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }
inline Int16 bytes64(const void* p) { return {load32(p), load32(static_cast<const std::byte*>(p) + 32)}; }
inline void store64(void* p, Int16 a) {
  store32(p, a.lo);
  store32(static_cast<std::byte*>(p) + 32, a.hi);
}
inline Float16 half16(const Half* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Float16 bf16_16(const std::uint16_t* p) {
  const auto eight = [](const std::uint16_t* at) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  };
  return {eight(p), eight(p + 8)};
}
inline Float16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Float16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline Float16 to_float(Int16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline Float16 mul(Float16 a, Float16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Float16 add(Float16 a, Float16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Float16 subtract(Float16 a, Float16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline Float16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Float16 fma(Float16 a, Float16 b, Float16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Float16 fnma(Float16 a, Float16 b, Float16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}

inline Int16 zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline Int16 every(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
template <int kBits>
inline Int16 shifted_left(Int16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
inline Int16 less(Int16 a, Int16 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }

inline __m256i four_bytes(const void* p) {
  std::int32_t bytes = 0;
  __builtin_memcpy(&bytes, p, 4);
  return _mm256_set1_epi32(bytes);
}
inline Int16 byte_group(const std::int8_t* q) {  // q + 128
  const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
  return {_mm256_xor_si256(load32(q), sign), _mm256_xor_si256(load32(q + 32), sign)};
}

#ifdef __AVXVNNI__
constexpr int kByteOffset = 128;  // bytes_of: q + 128
using Partial = Int16;
template <int kMost>
constexpr int kGroupsAtOnce = 8;
inline Partial begin_partial(Int16 sum) { return sum; }
inline Int16 end_partial(Int16, Partial part) { return part; }
inline Partial dot(Partial sum, Int16 w, const std::int8_t* x) {
  const __m256i four = four_bytes(x);
  return {_mm256_dpbusd_avx_epi32(sum.lo, w.lo, four), _mm256_dpbusd_avx_epi32(sum.hi, w.hi, four)};
}
inline Int16 dot_bytes(Int16 sum, Int16 w, const std::int8_t* x) { return dot(sum, w, x); }
inline Int16 bytes_of(const std::int8_t* q) { return byte_group(q); }
#else
constexpr int kByteOffset = 0;  // bytes_of: q as they are
// Sums of pairs of products in 16 bits, and for how many groups of quants up to kMost they fit.
struct Partial {
  __m256i lo, hi;
};
template <int kMost>
constexpr int kGroupsAtOnce = kMost <= 15   ? 8
                              : kMost <= 31 ? 4
                                            : 2;
static_assert(8 * 2 * 15 * 127 < 1 << 15 && 4 * 2 * 31 * 127 < 1 << 15 && 2 * 2 * 63 * 127 < 1 << 15);
// g++ would compute all products of a block first and add them as a tree: they would not stay in registers.
inline __m256i in_order(__m256i sum) {
  asm("" : "+x"(sum));
  return sum;
}
inline Partial begin_partial(Int16) { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline Int16 end_partial(Int16 sum, Partial part) {
  const __m256i one = _mm256_set1_epi16(1);
  return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(part.lo, one)),
          _mm256_add_epi32(sum.hi, _mm256_madd_epi16(part.hi, one))};
}
inline Partial dot(Partial sum, Int16 w, const std::int8_t* x) {
  const __m256i four = four_bytes(x);
  return {in_order(_mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(w.lo, four))),
          in_order(_mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(w.hi, four)))};
}
inline __m256i dot_signed(__m256i sum, __m256i w, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  return in_order(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
}
inline Int16 dot_bytes(Int16 sum, Int16 w, const std::int8_t* x) {
  const __m256i four = four_bytes(x);
  return {dot_signed(sum.lo, w.lo, four), dot_signed(sum.hi, w.hi, four)};
}
inline Int16 bytes_of(const std::int8_t* q) { return {load32(q), load32(q + 32)}; }
#endif

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
inline Int16 five_bit_group(const std::uint8_t (*q)[64], const std::uint8_t (*high)[8], int g) {
  const Int16 w = nibble_group(q, g);
  return {_mm256_or_si256(w.lo, bit_to_16(high[g])), _mm256_or_si256(w.hi, bit_to_16(high[g] + 4))};
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
inline Float16 byte_of(Int16 group, int c, int offset) {
  const __m256i mask = _mm256_set1_epi32(255), less = _mm256_set1_epi32(offset);
  const __m128i bits = _mm_cvtsi32_si128(8 * c);
  return to_float({_mm256_sub_epi32(_mm256_and_si256(_mm256_srl_epi32(group.lo, bits), mask), less),
                   _mm256_sub_epi32(_mm256_and_si256(_mm256_srl_epi32(group.hi, bits), mask), less)});
}
inline Int16 bytes_to_int(const std::uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Int16 bytes_to_int(const std::int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void store_columns(float* y, Float16 a, int columns) {
  if (columns == kPanelRows) return store(y, a);
  float all[kPanelRows];
  store(all, a);
  for (int i = 0; i < columns; ++i) y[i] = all[i];
}

template <int... kRows>
struct RowCounts {};
using DotRows = RowCounts<4, 2, 1>;
using GemmRows = RowCounts<5, 1>;

}  // namespace
}  // namespace kvtide
