// probe.avx2.cpp: limits of AVX2 and FMA. Eight-bit products take two instructions here: pairs to 16 bits, pairs of those to
// 32. Products of smaller quants can be summed in 16 bits first (matmul_lanes.avx2.h).
#include "kernels/probe_lanes.avx2.h"

namespace kvtide {
namespace {

std::int32_t dot_rounds(std::int64_t rounds) noexcept {
  const __m256i ones = _mm256_set1_epi16(1);
  return dot_chains(rounds, [ones](__m256i sum, __m256i weights, __m256i activations) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(weights, activations), ones));
  });
}

}  // namespace

extern constinit const ProbeRow kProbeAvx2 = probe_row("avx2", &dot_rounds);

}  // namespace kvtide
