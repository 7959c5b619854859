// probe.avx2.cpp: limits of AVX2 and FMA. Eight-bit products take two instructions here: pairs to 16 bits, pairs of those to
// 32. Products of smaller quants can be summed in 16 bits first (matmul_lanes.avx2.h).
#include "kernels/probe_lanes.avx2.h"

namespace kvtide {
namespace {

std::int32_t dot_rounds(std::int64_t rounds) noexcept {
  __m256i weights = _mm256_set1_epi8(3);
  const __m256i activations = _mm256_set1_epi8(-5), ones = _mm256_set1_epi16(1);
  __m256i sum[kChains] = {};
  for (std::int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(weights));  // could have changed: the products are computed again
      const __m256i pairs = _mm256_maddubs_epi16(weights, activations);
      sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pairs, ones));
    }
  for (int i = 1; i < kChains; ++i) sum[0] = _mm256_add_epi32(sum[0], sum[i]);
  return _mm256_extract_epi32(sum[0], 0);
}

}  // namespace

extern const ProbeRow kProbeAvx2{.isa = "avx2",
                                 .read = &read,
                                 .fma = &fma_rounds,
                                 .fma_flop = kChains * 8 * 2,
                                 .dot = &dot_rounds,
                                 .dot_op = kChains * 32 * 2};

}  // namespace kvtide
