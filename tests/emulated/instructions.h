// instructions.h: the instructions of AVX-512 that kernels use, by AVX2 and plain C++, and behind them those of AVX-VNNI and AMX
// (products.h, tiles.h). Read before a kernel file, it lets the tests of kernels run on processors that have none of them.
// Each function does what Intel's guide says of the intrinsic of its name:
// <https://www.intel.com/content/www/us/en/docs/intrinsics-guide/>.
//
// -DEMULATED_AVXVNNI, -DEMULATED_BF16 and -DEMULATED_AMX stand for the compiler's options.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef EMULATED_AVXVNNI
#define __AVXVNNI__ 1
#endif
#ifdef EMULATED_BF16
#define __AVX512BF16__ 1
#endif
#ifdef EMULATED_AMX
#define __AMX_TILE__ 1
#endif

namespace {
namespace emulated {

template <class T>
using Elements = std::array<T, 64 / sizeof(T)>;
template <class T, class V>
inline Elements<T> elements(V v) {
  return std::bit_cast<Elements<T>>(v);
}
// Element i is of(i).
template <class V, class T, class Of>
inline V each_element(Of of) {
  std::array<T, sizeof(V) / sizeof(T)> all;
  for (int i = 0; i < static_cast<int>(all.size()); ++i)
    all[static_cast<std::size_t>(i)] = static_cast<T>(of(i));
  return std::bit_cast<V>(all);
}
inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

// f of both halves of every argument.
template <class Half, class V>
inline Half half(V v, int i) {
  return std::bit_cast<std::array<Half, sizeof(V) / sizeof(Half)>>(v)[at(i)];
}
template <class V, class Half, class F, class... A>
inline V halves(F f, A... a) {
  const std::array both = {f(half<Half>(a, 0)...), f(half<Half>(a, 1)...)};
  return std::bit_cast<V>(both);
}
#define EMULATED_HALVES(result, argument, name)                                           \
  template <class... A>                                                                   \
  inline result mm512_##name(A... a) {                                                    \
    return halves<result, argument>([](auto... x) { return _mm256_##name(x...); }, a...); \
  }
EMULATED_HALVES(__m512, __m256, add_ps)
EMULATED_HALVES(__m512, __m256, sub_ps)
EMULATED_HALVES(__m512, __m256, mul_ps)
EMULATED_HALVES(__m512, __m256, div_ps)
EMULATED_HALVES(__m512, __m256, min_ps)
EMULATED_HALVES(__m512, __m256, max_ps)
EMULATED_HALVES(__m512, __m256, fmadd_ps)
EMULATED_HALVES(__m512, __m256, fnmadd_ps)
EMULATED_HALVES(__m512, __m256i, cvtepi32_ps)
EMULATED_HALVES(__m512i, __m256, cvttps_epi32)
EMULATED_HALVES(__m512i, __m256i, add_epi32)
EMULATED_HALVES(__m512i, __m256i, sub_epi32)
EMULATED_HALVES(__m512i, __m256i, sub_epi8)
EMULATED_HALVES(__m512i, __m256i, max_epu32)
EMULATED_HALVES(__m512i, __m256i, unpacklo_epi16)
EMULATED_HALVES(__m512i, __m256i, unpackhi_epi16)
EMULATED_HALVES(__m512i, __m256i, unpacklo_epi32)
EMULATED_HALVES(__m512i, __m256i, unpackhi_epi32)
EMULATED_HALVES(__m512i, __m256i, unpacklo_epi64)
EMULATED_HALVES(__m512i, __m256i, unpackhi_epi64)
EMULATED_HALVES(__m512d, __m256d, unpacklo_pd)
EMULATED_HALVES(__m512d, __m256d, unpackhi_pd)
EMULATED_HALVES(__m512, __m128i, cvtph_ps)
EMULATED_HALVES(__m512i, __m128i, cvtepi8_epi16)
EMULATED_HALVES(__m512i, __m128i, cvtepu16_epi32)
#undef EMULATED_HALVES

inline __m512i mm512_and_si512(__m512i a, __m512i b) { return a & b; }
inline __m512i mm512_or_si512(__m512i a, __m512i b) { return a | b; }
inline __m512i mm512_xor_si512(__m512i a, __m512i b) { return a ^ b; }

// Shifts by a number of bits.
template <class F>
inline __m512i shifted(F f, __m512i a, __m128i bits) {
  return halves<__m512i, __m256i>([&](__m256i x) { return f(x, bits); }, a);
}
inline __m512i mm512_srl_epi32(__m512i a, __m128i bits) {
  return shifted([](__m256i x, __m128i n) { return _mm256_srl_epi32(x, n); }, a, bits);
}
inline __m512i mm512_srli_epi32(__m512i a, int bits) { return mm512_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
inline __m512i mm512_slli_epi32(__m512i a, int bits) {
  return shifted([](__m256i x, __m128i n) { return _mm256_sll_epi32(x, n); }, a, _mm_cvtsi32_si128(bits));
}
inline __m512i mm512_slli_epi16(__m512i a, int bits) {
  return shifted([](__m256i x, __m128i n) { return _mm256_sll_epi16(x, n); }, a, _mm_cvtsi32_si128(bits));
}
inline __m512i mm512_srli_epi16(__m512i a, int bits) {
  return shifted([](__m256i x, __m128i n) { return _mm256_srl_epi16(x, n); }, a, _mm_cvtsi32_si128(bits));
}
inline __m512i mm512_srai_epi16(__m512i a, int bits) {
  return shifted([](__m256i x, __m128i n) { return _mm256_sra_epi16(x, n); }, a, _mm_cvtsi32_si128(bits));
}

// Memory, and one number everywhere.
template <class V>
inline V load(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
inline void store(void* p, V v) {
  std::memcpy(p, &v, sizeof v);
}
inline __m512 mm512_loadu_ps(const void* p) { return load<__m512>(p); }
inline __m512i mm512_loadu_si512(const void* p) { return load<__m512i>(p); }
inline __m512i mm512_load_si512(const void* p) { return load<__m512i>(p); }
inline void mm512_storeu_ps(void* p, __m512 a) { store(p, a); }
inline void mm512_storeu_si512(void* p, __m512i a) { store(p, a); }
inline void mm512_store_si512(void* p, __m512i a) { store(p, a); }
inline __m512 mm512_set1_ps(float x) {
  return each_element<__m512, float>([=](int) { return x; });
}
inline __m512i mm512_set1_epi32(int x) {
  return each_element<__m512i, int>([=](int) { return x; });
}
inline __m512i mm512_set1_epi8(char x) {
  return each_element<__m512i, char>([=](int) { return x; });
}
template <class... Int>
inline __m512i mm512_setr_epi32(Int... x) {
  return std::bit_cast<__m512i>(std::array<int, 16>{x...});
}
template <class... Int>
inline __m512i mm512_setr_epi64(Int... x) {
  return std::bit_cast<__m512i>(std::array<long long, 8>{x...});
}

// The same bits as another type, and parts.
inline __m512 mm512_castsi512_ps(__m512i a) { return std::bit_cast<__m512>(a); }
inline __m512i mm512_castps_si512(__m512 a) { return std::bit_cast<__m512i>(a); }
inline __m512d mm512_castps_pd(__m512 a) { return std::bit_cast<__m512d>(a); }
inline __m512 mm512_castpd_ps(__m512d a) { return std::bit_cast<__m512>(a); }
inline __m256 mm512_castps512_ps256(__m512 a) { return half<__m256>(a, 0); }
inline __m512i mm512_castsi256_si512(__m256i a) { return std::bit_cast<__m512i>(std::array{a, a}); }
inline __m256 mm512_extractf32x8_ps(__m512 a, int i) { return half<__m256>(a, i); }
inline __m512i mm512_inserti64x4(__m512i a, __m256i b, int i) {
  std::array both = {half<__m256i>(a, 0), half<__m256i>(a, 1)};
  both[at(i)] = b;
  return std::bit_cast<__m512i>(both);
}
inline float mm512_cvtss_f32(__m512 a) { return elements<float>(a)[0]; }
inline int mm512_cvtsi512_si32(__m512i a) { return elements<int>(a)[0]; }

// Conversions.
inline __m512i mm512_cvtepi8_epi32(__m128i a) {
  const auto bytes = std::bit_cast<std::array<std::int8_t, 16>>(a);
  return each_element<__m512i, int>([&](int i) { return bytes[at(i)]; });
}
inline __m512i mm512_cvtepu8_epi32(__m128i a) {
  const auto bytes = std::bit_cast<std::array<std::uint8_t, 16>>(a);
  return each_element<__m512i, int>([&](int i) { return bytes[at(i)]; });
}
inline __m256i mm512_cvtepi32_epi16(__m512i a) {
  const auto all = elements<int>(a);
  return each_element<__m256i, std::int16_t>([&](int i) { return all[at(i)]; });
}
inline __m128i mm512_cvtepi32_epi8(__m512i a) {
  const auto all = elements<int>(a);
  return each_element<__m128i, std::int8_t>([&](int i) { return all[at(i)]; });
}
inline __m256i mm512_cvtps_ph(__m512 a, int) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return halves<__m256i, __m256>([](__m256 x) { return _mm256_cvtps_ph(x, kNearest); }, a);
}
inline __m512 mm512_roundscale_ps(__m512 a, int) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return halves<__m512, __m256>([](__m256 x) { return _mm256_round_ps(x, kNearest); }, a);
}
inline __m512 mm512_abs_ps(__m512 a) {
  return mm512_castsi512_ps(mm512_castps_si512(a) & mm512_set1_epi32(0x7fffffff));
}

// Places.
inline __m512i lanes_of_128(__m512i a, __m512i b, int order) {
  const auto x = std::bit_cast<std::array<__m128i, 4>>(a), y = std::bit_cast<std::array<__m128i, 4>>(b);
  return std::bit_cast<__m512i>(
      std::array{x[at(order & 3)], x[at(order >> 2 & 3)], y[at(order >> 4 & 3)], y[at(order >> 6 & 3)]});
}
inline __m512i mm512_shuffle_i32x4(__m512i a, __m512i b, int order) { return lanes_of_128(a, b, order); }
inline __m512 mm512_shuffle_f32x4(__m512 a, __m512 b, int order) {
  return mm512_castsi512_ps(lanes_of_128(mm512_castps_si512(a), mm512_castps_si512(b), order));
}
inline __m512 mm512_shuffle_ps(__m512 a, __m512 b, int order) {
  const auto x = elements<float>(a), y = elements<float>(b);
  return each_element<__m512, float>([&](int i) {
    const std::size_t from = at((i & ~3) + (order >> 2 * (i & 3) & 3));
    return (i & 3) < 2 ? x[from] : y[from];
  });
}
inline __m512 mm512_permute_ps(__m512 a, int order) { return mm512_shuffle_ps(a, a, order); }
inline __m512 mm512_permutexvar_ps(__m512i order, __m512 a) {
  const auto from = elements<int>(order);
  const auto x = elements<float>(a);
  return each_element<__m512, float>([&](int i) { return x[at(from[at(i)] & 15)]; });
}
inline __m512i mm512_permutexvar_epi16(__m512i order, __m512i a) {
  const auto from = elements<std::int16_t>(order), x = elements<std::int16_t>(a);
  return each_element<__m512i, std::int16_t>([&](int i) { return x[at(from[at(i)] & 31)]; });
}
inline __m512i mm512_permutex2var_epi64(__m512i a, __m512i order, __m512i b) {
  const auto from = elements<long long>(order), x = elements<long long>(a), y = elements<long long>(b);
  return each_element<__m512i, long long>([&](int i) {
    const std::size_t place = static_cast<std::size_t>(from[at(i)] & 7);
    return (from[at(i)] & 8) == 0 ? x[place] : y[place];
  });
}

// Masks.
inline __mmask16 mm512_cmp_ps_mask(__m512 a, __m512 b, int how) {
  const auto x = elements<float>(a), y = elements<float>(b);
  unsigned mask = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    const bool less = x[i] < y[i], unordered = std::isnan(x[i]) || std::isnan(y[i]);
    mask |= (how == _CMP_LT_OQ ? less : how == _CMP_NLT_UQ ? !less : unordered) ? 1u << i : 0u;
  }
  return static_cast<__mmask16>(mask);
}
template <class T, class V>
inline V chosen(unsigned long long mask, V no, V yes) {
  const auto x = elements<T>(no), y = elements<T>(yes);
  return each_element<V, T>([&](int i) { return (mask >> i & 1) != 0 ? y[at(i)] : x[at(i)]; });
}
inline __m512 mm512_mask_blend_ps(__mmask16 mask, __m512 a, __m512 b) { return chosen<float>(mask, a, b); }
inline __m512i mm512_mask_or_epi32(__m512i src, __mmask16 mask, __m512i a, __m512i b) {
  return chosen<int>(mask, src, a | b);
}
inline __m512i mm512_mask_add_epi8(__m512i src, __mmask64 mask, __m512i a, __m512i b) {
  const auto x = elements<std::int8_t>(a), y = elements<std::int8_t>(b);
  return chosen<std::int8_t>(mask, src,
                             each_element<__m512i, std::int8_t>([&](int i) { return x[at(i)] + y[at(i)]; }));
}
inline void mm512_mask_storeu_ps(void* p, __mmask16 mask, __m512 a) {
  const auto x = elements<float>(a);
  for (int i = 0; i < 16; ++i)
    if ((mask >> i & 1) != 0) std::memcpy(static_cast<char*>(p) + 4 * i, &x[at(i)], 4);
}
inline __m512 mm512_maskz_scalef_ps(__mmask16 mask, __m512 a, __m512 b) {
  const auto x = elements<float>(a), y = elements<float>(b);
  return each_element<__m512, float>([&](int i) {
    if ((mask >> i & 1) == 0) return 0.0f;
    if (std::isnan(y[at(i)])) return y[at(i)];
    return std::scalbn(x[at(i)], static_cast<int>(std::floor(std::clamp(y[at(i)], -1e4f, 1e4f))));
  });
}
inline float mm512_reduce_max_ps(__m512 a) {
  const auto x = elements<float>(a);
  return *std::max_element(x.begin(), x.end());
}
inline unsigned mm512_reduce_max_epu32(__m512i a) {
  const auto x = elements<unsigned>(a);
  return *std::max_element(x.begin(), x.end());
}

}  // namespace emulated
}  // namespace

#define _mm512_abs_ps emulated::mm512_abs_ps
#define _mm512_add_epi32 emulated::mm512_add_epi32
#define _mm512_add_ps emulated::mm512_add_ps
#define _mm512_and_si512 emulated::mm512_and_si512
#define _mm512_castpd_ps emulated::mm512_castpd_ps
#define _mm512_castps512_ps256 emulated::mm512_castps512_ps256
#define _mm512_castps_pd emulated::mm512_castps_pd
#define _mm512_castps_si512 emulated::mm512_castps_si512
#define _mm512_castsi256_si512 emulated::mm512_castsi256_si512
#define _mm512_castsi512_ps emulated::mm512_castsi512_ps
#define _mm512_cmp_ps_mask emulated::mm512_cmp_ps_mask
#define _mm512_cvtepi32_epi16 emulated::mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi8 emulated::mm512_cvtepi32_epi8
#define _mm512_cvtepi32_ps emulated::mm512_cvtepi32_ps
#define _mm512_cvtepi8_epi16 emulated::mm512_cvtepi8_epi16
#define _mm512_cvtepi8_epi32 emulated::mm512_cvtepi8_epi32
#define _mm512_cvtepu16_epi32 emulated::mm512_cvtepu16_epi32
#define _mm512_cvtepu8_epi32 emulated::mm512_cvtepu8_epi32
#define _mm512_cvtph_ps emulated::mm512_cvtph_ps
#define _mm512_cvtps_ph emulated::mm512_cvtps_ph
#define _mm512_cvtsi512_si32 emulated::mm512_cvtsi512_si32
#define _mm512_cvtss_f32 emulated::mm512_cvtss_f32
#define _mm512_cvttps_epi32 emulated::mm512_cvttps_epi32
#define _mm512_div_ps emulated::mm512_div_ps
#define _mm512_extractf32x8_ps emulated::mm512_extractf32x8_ps
#define _mm512_fmadd_ps emulated::mm512_fmadd_ps
#define _mm512_fnmadd_ps emulated::mm512_fnmadd_ps
#define _mm512_inserti64x4 emulated::mm512_inserti64x4
#define _mm512_load_si512 emulated::mm512_load_si512
#define _mm512_loadu_ps emulated::mm512_loadu_ps
#define _mm512_loadu_si512 emulated::mm512_loadu_si512
#define _mm512_mask_add_epi8 emulated::mm512_mask_add_epi8
#define _mm512_mask_blend_ps emulated::mm512_mask_blend_ps
#define _mm512_mask_or_epi32 emulated::mm512_mask_or_epi32
#define _mm512_mask_storeu_ps emulated::mm512_mask_storeu_ps
#define _mm512_maskz_scalef_ps emulated::mm512_maskz_scalef_ps
#define _mm512_max_epu32 emulated::mm512_max_epu32
#define _mm512_max_ps emulated::mm512_max_ps
#define _mm512_min_ps emulated::mm512_min_ps
#define _mm512_mul_ps emulated::mm512_mul_ps
#define _mm512_or_si512 emulated::mm512_or_si512
#define _mm512_permute_ps emulated::mm512_permute_ps
#define _mm512_permutex2var_epi64 emulated::mm512_permutex2var_epi64
#define _mm512_permutexvar_epi16 emulated::mm512_permutexvar_epi16
#define _mm512_permutexvar_ps emulated::mm512_permutexvar_ps
#define _mm512_reduce_max_epu32 emulated::mm512_reduce_max_epu32
#define _mm512_reduce_max_ps emulated::mm512_reduce_max_ps
#define _mm512_roundscale_ps emulated::mm512_roundscale_ps
#define _mm512_set1_epi32 emulated::mm512_set1_epi32
#define _mm512_set1_epi8 emulated::mm512_set1_epi8
#define _mm512_set1_ps emulated::mm512_set1_ps
#undef _mm512_setr_epi32
#define _mm512_setr_epi32 emulated::mm512_setr_epi32
#undef _mm512_setr_epi64
#define _mm512_setr_epi64 emulated::mm512_setr_epi64
#define _mm512_shuffle_f32x4 emulated::mm512_shuffle_f32x4
#define _mm512_shuffle_i32x4 emulated::mm512_shuffle_i32x4
#define _mm512_shuffle_ps emulated::mm512_shuffle_ps
#define _mm512_slli_epi16 emulated::mm512_slli_epi16
#define _mm512_slli_epi32 emulated::mm512_slli_epi32
#define _mm512_srai_epi16 emulated::mm512_srai_epi16
#define _mm512_srl_epi32 emulated::mm512_srl_epi32
#define _mm512_srli_epi16 emulated::mm512_srli_epi16
#define _mm512_srli_epi32 emulated::mm512_srli_epi32
#define _mm512_store_si512 emulated::mm512_store_si512
#define _mm512_storeu_ps emulated::mm512_storeu_ps
#define _mm512_storeu_si512 emulated::mm512_storeu_si512
#define _mm512_sub_epi32 emulated::mm512_sub_epi32
#define _mm512_sub_epi8 emulated::mm512_sub_epi8
#define _mm512_sub_ps emulated::mm512_sub_ps
#define _mm512_unpackhi_epi16 emulated::mm512_unpackhi_epi16
#define _mm512_unpackhi_epi32 emulated::mm512_unpackhi_epi32
#define _mm512_unpackhi_epi64 emulated::mm512_unpackhi_epi64
#define _mm512_unpackhi_pd emulated::mm512_unpackhi_pd
#define _mm512_unpacklo_epi16 emulated::mm512_unpacklo_epi16
#define _mm512_unpacklo_epi32 emulated::mm512_unpacklo_epi32
#define _mm512_unpacklo_epi64 emulated::mm512_unpacklo_epi64
#define _mm512_unpacklo_pd emulated::mm512_unpacklo_pd
#define _mm512_xor_si512 emulated::mm512_xor_si512

// Behind what they are written on.
#include "tests/emulated/products.h"
#include "tests/emulated/tiles.h"
