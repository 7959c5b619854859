// probe_vnni.avx2.cpp: limits of AVX2 with the dot products of AVX-VNNI.
#include "kernels/probe_lanes.avx2.h"

namespace kvtide {
namespace {

std::int32_t dot_rounds(std::int64_t rounds) noexcept {
  __m256i weights = _mm256_set1_epi8(3);
  const __m256i activations = _mm256_set1_epi8(-5);
  __m256i sum[kChains] = {};
  for (std::int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(weights));  // could have changed: equal chains are not computed once for all
      sum[i] = _mm256_dpbusd_avx_epi32(sum[i], weights, activations);
    }
  for (int i = 1; i < kChains; ++i) sum[0] = _mm256_add_epi32(sum[0], sum[i]);
  return _mm256_extract_epi32(sum[0], 0);
}

}  // namespace

extern const ProbeRow kProbeAvxVnni{.isa = "avx_vnni",
                                    .read = &read,
                                    .fma = &fma_rounds,
                                    .fma_flop = kChains * 8 * 2,
                                    .dot = &dot_rounds,
                                    .dot_op = kChains * 32 * 2};

}  // namespace kvtide
