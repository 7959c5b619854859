// probe.scalar.cpp: limits of plain C++, as the compiler makes it for the baseline.
#include <cmath>

#include "kernels/probe.h"

namespace kvtide {
namespace {

constexpr int kChains = 8;

std::uint64_t read(const std::byte* data, std::size_t bytes) noexcept {
  std::uint64_t sum[4] = {};
  for (std::size_t at = 0; at < bytes; at += 32) {
    std::uint64_t words[4];
    __builtin_memcpy(words, data + at, 32);
    for (int i = 0; i < 4; ++i) sum[i] ^= words[i];
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

float fma_rounds(std::int64_t rounds) noexcept {
  float sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = 1.0f + static_cast<float>(i);
  for (std::int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) sum[i] = std::fma(sum[i], 0.999f, 0.001f);
  float total = 0.0f;
  for (int i = 0; i < kChains; ++i) total += sum[i];
  return total;
}

std::int32_t dot_rounds(std::int64_t rounds) noexcept {
  std::int8_t a[kChains * 4], b[kChains * 4];
  for (int i = 0; i < kChains * 4; ++i) {
    a[i] = static_cast<std::int8_t>(i + 1);
    b[i] = static_cast<std::int8_t>(i - 7);
  }
  std::uint32_t sum[kChains] = {};
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+m"(a));  // the operands could have changed: the products are computed again
    for (int i = 0; i < kChains; ++i)
      for (int j = 0; j < 4; ++j) sum[i] += static_cast<std::uint32_t>(a[4 * i + j] * b[4 * i + j]);
  }
  std::uint32_t total = 0;
  for (int i = 0; i < kChains; ++i) total += sum[i];
  return static_cast<std::int32_t>(total);
}

}  // namespace

extern const ProbeRow kProbeScalar{.isa = "scalar",
                                   .read = &read,
                                   .fma = &fma_rounds,
                                   .fma_flop = kChains * 2,
                                   .dot = &dot_rounds,
                                   .dot_op = kChains * 4 * 2};

}  // namespace kvtide
