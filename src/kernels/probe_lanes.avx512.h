// probe_lanes.avx512.h: the loops of probe.h that every table with AVX-512 shares.
#pragma once

#include <immintrin.h>

#include "kernels/probe.h"

namespace kvtide {
namespace {

constexpr int kChains = 12;  // latency of an FMA or a dot product (4 to 5 cycles) times two units, and some

std::uint64_t read(const std::byte* data, std::size_t bytes) noexcept {
  __m512i sum[4] = {};
  for (std::size_t at = 0; at < bytes; at += 256)
    for (int i = 0; i < 4; ++i) sum[i] = _mm512_xor_si512(sum[i], _mm512_load_si512(data + at + 64 * i));
  const __m512i all = _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
  alignas(64) std::uint64_t words[8];
  _mm512_store_si512(words, all);
  return words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4] ^ words[5] ^ words[6] ^ words[7];
}

float fma_rounds(std::int64_t rounds) noexcept {
  const __m512 factor = _mm512_set1_ps(0.999f), rest = _mm512_set1_ps(0.001f);
  __m512 sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(1.0f + static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) sum[i] = _mm512_fmadd_ps(sum[i], factor, rest);
  for (int i = 1; i < kChains; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return _mm512_cvtss_f32(sum[0]);
}

}  // namespace
}  // namespace kvtide
