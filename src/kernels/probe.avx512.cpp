// probe.avx512.cpp: limits of AVX-512 and its VNNI dot products.
#include "kernels/probe_lanes.avx512.h"

namespace kvtide {
namespace {

std::int32_t dot_rounds(std::int64_t rounds) noexcept {
  __m512i weights = _mm512_set1_epi8(3);
  const __m512i activations = _mm512_set1_epi8(-5);
  __m512i sum[kChains] = {};
  for (std::int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+v"(weights));  // could have changed: equal chains are not computed once for all
      sum[i] = _mm512_dpbusd_epi32(sum[i], weights, activations);
    }
  for (int i = 1; i < kChains; ++i) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
  return _mm512_cvtsi512_si32(sum[0]);
}

}  // namespace

extern const ProbeRow kProbeAvx512{.isa = "avx512",
                                   .read = &read,
                                   .fma = &fma_rounds,
                                   .fma_flop = kChains * 16 * 2,
                                   .dot = &dot_rounds,
                                   .dot_op = kChains * 64 * 2};

}  // namespace kvtide
