// products.h: the products of AVX-VNNI, and of AVX-512 with VNNI and bf16 numbers. Included by instructions.h.
#pragma once

namespace {
namespace emulated {

template <class V>
inline V dpbusd(V sum, V w, V x) {
  const auto bytes = std::bit_cast<std::array<std::uint8_t, sizeof(V)>>(w);
  const auto with_sign = std::bit_cast<std::array<std::int8_t, sizeof(V)>>(x);
  const auto before = std::bit_cast<std::array<int, sizeof(V) / 4>>(sum);
  return each_element<V, int>([&](int i) {
    int total = before[at(i)];
    for (int j = 4 * i; j < 4 * i + 4; ++j) total += bytes[at(j)] * with_sign[at(j)];
    return total;
  });
}
inline __m256i mm256_dpbusd_avx_epi32(__m256i sum, __m256i w, __m256i x) { return dpbusd(sum, w, x); }
inline __m512i mm512_dpbusd_epi32(__m512i sum, __m512i w, __m512i x) { return dpbusd(sum, w, x); }
inline __m512i mm512_dpwssd_epi32(__m512i sum, __m512i a, __m512i b) {
  return mm512_add_epi32(
      sum, halves<__m512i, __m256i>([](__m256i x, __m256i y) { return _mm256_madd_epi16(x, y); }, a, b));
}
inline float bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
inline __m512 mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b) {  // the second numbers first
  const auto before = elements<float>(sum);
  const auto x = elements<std::uint16_t>(a), y = elements<std::uint16_t>(b);
  return each_element<__m512, float>([&](int i) {
    const float second = std::fma(bf16(x[at(2 * i + 1)]), bf16(y[at(2 * i + 1)]), before[at(i)]);
    return std::fma(bf16(x[at(2 * i)]), bf16(y[at(2 * i)]), second);
  });
}
inline __m512bh mm512_cvtne2ps_pbh(__m512 high, __m512 low) {
  const auto x = elements<std::uint32_t>(low), y = elements<std::uint32_t>(high);
  return each_element<__m512bh, std::uint16_t>([&](int i) {
    const std::uint32_t bits = i < 16 ? x[at(i)] : y[at(i - 16)];
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits | 0x400000u) >> 16;
    if ((bits & 0x7f800000u) == 0) return (bits & 0x80000000u) >> 16;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  });
}

}  // namespace emulated
}  // namespace

#define _mm256_dpbusd_avx_epi32 emulated::mm256_dpbusd_avx_epi32
#define _mm512_cvtne2ps_pbh emulated::mm512_cvtne2ps_pbh
#define _mm512_dpbf16_ps emulated::mm512_dpbf16_ps
#define _mm512_dpbusd_epi32 emulated::mm512_dpbusd_epi32
#define _mm512_dpwssd_epi32 emulated::mm512_dpwssd_epi32
