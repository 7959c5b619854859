// samples.h: made-up numbers and weights for tests. Deterministic: the same seed gives the same bits
// everywhere.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "tensor/dtype.h"

namespace kvtide::testing {

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const auto mixed = static_cast<std::uint32_t>(((state_ >> 18) ^ state_) >> 27);
    return std::rotr(mixed, static_cast<int>(state_ >> 59));
  }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
  }
  // In [low, high), with 24 random bits.
  float real(float low, float high) {
    return low + (high - low) * (static_cast<float>(bits() >> 8) * 0x1p-24f);
  }
  // About normal: mean 0, deviation 1.
  float normal() {
    float sum = 0.0f;
    for (int i = 0; i < 12; ++i) sum += real(-0.5f, 0.5f);
    return sum;
  }

 private:
  std::uint64_t state_;
};

inline std::vector<float> normals(std::size_t n, std::uint64_t seed, float deviation = 1.0f) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& x : out) x = rng.normal() * deviation;
  return out;
}

// Byte offsets of the f16 scales in a block of a quantised type.
inline std::vector<std::size_t> scale_offsets(DType dtype) {
  switch (dtype) {
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {0, 2};
    case DType::q2_k:
      return {80, 82};
    case DType::q3_k:
      return {108};
    case DType::q6_k:
      return {208};
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::mxfp4:
    case DType::iq1_m:
      return {};
    case DType::tq1_0:
      return {52};
    case DType::tq2_0:
      return {64};
    default:
      return {0};
  }
}

// A quarter of the scale in the upper four bits of each of the block's last four words, the lowest first.
inline void put_iq1_m_scale(std::byte* block, std::uint16_t bits) {
  for (unsigned i = 0; i < 4; ++i) {
    std::byte& upper = block[48 + 2 * i + 1];
    upper = (upper & std::byte{15}) | static_cast<std::byte>((bits >> (4 * i) & 15u) << 4);
  }
}

// `elements` weights of any type, as stored in files: random quants under random scales of about `scale`, or
// plain floats of about `scale`.
inline std::vector<std::byte> random_blocks(DType dtype, std::int64_t elements, std::uint64_t seed,
                                            float scale) {
  Rng rng(seed);
  std::vector<std::byte> out(static_cast<std::size_t>(dtype_bytes(dtype, elements)));
  const auto put16 = [&](std::size_t at, std::uint16_t value) { std::memcpy(out.data() + at, &value, 2); };
  if (dtype_info(dtype).block_elements == 1) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(elements); ++i) {
      const float value = rng.normal() * scale;
      if (dtype == DType::f32) std::memcpy(out.data() + 4 * i, &value, 4);
      if (dtype == DType::f16) put16(2 * i, f32_to_f16(value));
      if (dtype == DType::bf16)
        put16(2 * i, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
    }
    return out;
  }
  for (std::byte& byte : out) byte = static_cast<std::byte>(rng.bits() >> 24);
  const auto block = static_cast<std::size_t>(dtype_info(dtype).block_bytes);
  for (std::size_t at = 0; at < out.size(); at += block) {
    if (dtype == DType::mxfp4)  // a power of two, up to a quarter of the scale
      out[at] =
          static_cast<std::byte>(125 + static_cast<int>(std::log2(scale)) - static_cast<int>(rng.bits() % 5));
    if (dtype == DType::iq1_m) put_iq1_m_scale(out.data() + at, f32_to_f16(rng.real(-1.0f, 1.0f) * scale));
    for (const std::size_t offset : scale_offsets(dtype))
      put16(at + offset, f32_to_f16(rng.real(-1.0f, 1.0f) * scale));
  }
  return out;
}

}  // namespace kvtide::testing
