// probe_vnni.avx2.cpp: limits of AVX2 with the dot products of AVX-VNNI.
#include "kernels/probe_lanes.avx2.h"

namespace kvtide {
namespace {

std::int32_t dot_rounds(std::int64_t rounds) noexcept {
  return dot_chains(rounds, [](__m256i sum, __m256i weights, __m256i activations) {
    return _mm256_dpbusd_avx_epi32(sum, weights, activations);
  });
}

}  // namespace

extern constinit const ProbeRow kProbeAvxVnni = probe_row("avx_vnni", &dot_rounds);

}  // namespace kvtide
