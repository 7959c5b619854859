// probe_lanes.avx2.h: the loops of probe.h that both tables with AVX2 share.
#pragma once

#include <immintrin.h>

#include "kernels/probe.h"

namespace kvtide {
namespace {

constexpr int kChains = 10;  // latency of an FMA (4 to 5 cycles) times two units

std::uint64_t read(const std::byte* data, std::size_t bytes) noexcept {
  __m256i sum[4] = {};
  for (std::size_t at = 0; at < bytes; at += 128)
    for (int i = 0; i < 4; ++i)
      sum[i] = _mm256_xor_si256(sum[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at) + i));
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 1) ^
                                    _mm256_extract_epi64(all, 2) ^ _mm256_extract_epi64(all, 3));
}

float fma_rounds(std::int64_t rounds) noexcept {
  const __m256 factor = _mm256_set1_ps(0.999f), rest = _mm256_set1_ps(0.001f);
  __m256 sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm256_set1_ps(1.0f + static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) sum[i] = _mm256_fmadd_ps(sum[i], factor, rest);
  for (int i = 1; i < kChains; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  return _mm256_cvtss_f32(sum[0]);
}

// product(sum, weights, activations): 32 products of bytes, added to eight sums.
template <class Product>
inline std::int32_t dot_chains(std::int64_t rounds, Product product) {
  __m256i weights = _mm256_set1_epi8(3);
  const __m256i activations = _mm256_set1_epi8(-5);
  __m256i sum[kChains] = {};
  for (std::int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(weights));  // could have changed: the products are computed again
      sum[i] = product(sum[i], weights, activations);
    }
  for (int i = 1; i < kChains; ++i) sum[0] = _mm256_add_epi32(sum[0], sum[i]);
  return _mm256_extract_epi32(sum[0], 0);
}

using DotRounds = std::int32_t (*)(std::int64_t rounds) noexcept;
constexpr ProbeRow probe_row(const char* isa, DotRounds dot) {
  return {.isa = isa,
          .read = &read,
          .fma = &fma_rounds,
          .fma_flop = kChains * 8 * 2,
          .dot = dot,
          .dot_op = kChains * 32 * 2};
}

}  // namespace
}  // namespace kvtide
