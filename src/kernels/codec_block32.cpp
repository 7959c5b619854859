// The types with blocks of 32 elements. In the 4-bit ones the low nibbles of the 16 bytes are elements 0 to
// 15 and the high nibbles elements 16 to 31; in the 5-bit ones bit i of the 32-bit word `qh` is the fifth bit
// of element i.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/codec_rows.h"
#include "kernels/lanes.scalar.h"

#include "kernels/four_bits.inl"

namespace kvtide {
namespace {

constexpr int kHalf = 16;

void decode_q4_0(const BlockQ4_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * static_cast<float>((block.qs[i] & 15) - 8);
    out[i + kHalf] = d * static_cast<float>((block.qs[i] >> 4) - 8);
  }
}

void decode_q4_1(const BlockQ4_1& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * static_cast<float>(block.qs[i] & 15) + m;
    out[i + kHalf] = d * static_cast<float>(block.qs[i] >> 4) + m;
  }
}

// The fifth bits of all elements, spread to one byte each with the value 0 or 16.
struct FifthBits {
  explicit FifthBits(const std::uint8_t (&qh)[4]) {
    for (int i = 0; i < 2 * kHalf; ++i)
      value[i] = static_cast<std::uint8_t>(((qh[i / 8] >> (i % 8)) & 1) << 4);
  }
  std::uint8_t value[2 * kHalf];
};

void decode_q5_0(const BlockQ5_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  const FifthBits fifth(block.qh);
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * static_cast<float>(((block.qs[i] & 15) | fifth.value[i]) - 16);
    out[i + kHalf] = d * static_cast<float>(((block.qs[i] >> 4) | fifth.value[i + kHalf]) - 16);
  }
}

void decode_q5_1(const BlockQ5_1& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  const FifthBits fifth(block.qh);
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * static_cast<float>((block.qs[i] & 15) | fifth.value[i]) + m;
    out[i + kHalf] = d * static_cast<float>((block.qs[i] >> 4) | fifth.value[i + kHalf]) + m;
  }
}

void decode_q8_0(const BlockQ8_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 2 * kHalf; ++i) out[i] = static_cast<float>(block.qs[i]) * d;
}

void decode_iq4_nl(const BlockIQ4NL& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * static_cast<float>(kIq4Levels[block.qs[i] & 15]);
    out[i + kHalf] = d * static_cast<float>(kIq4Levels[block.qs[i] >> 4]);
  }
}

void decode_mxfp4(const BlockMxfp4& block, float* out) {
  const float half = std::ldexp(1.0f, block.e - 128);
  for (int i = 0; i < kHalf; ++i) {
    out[i] = half * static_cast<float>(kMxfp4Doubled[block.qs[i] & 15]);
    out[i + kHalf] = half * static_cast<float>(kMxfp4Doubled[block.qs[i] >> 4]);
  }
}

// The largest scale of which six is still a float.
constexpr std::uint8_t kLargestMxfp4Scale = 252;

bool mxfp4_finite(const std::byte* blocks, std::int64_t elements) noexcept {
  for (std::int64_t i = 0; i < elements; i += 2 * kHalf, blocks += sizeof(BlockMxfp4))
    if (std::to_integer<std::uint8_t>(*blocks) > kLargestMxfp4Scale) return false;
  return true;
}

// Index of the first element with the largest magnitude. Magnitudes of floats order like their bits, and NaN
// comes above infinity.
int largest_of_block(const float* x) {
  int at = 0;
  for (int i = 1; i < 2 * kHalf; ++i)
    if ((std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu) >
        (std::bit_cast<std::uint32_t>(x[at]) & 0x7fffffffu))
      at = i;
  return at;
}

// Scale: the largest magnitude / 127, rounded to f16 only when stored; the integers use the unrounded one.
BlockQ8_0 encode_block_q8_0(const float* x) {
  constexpr int kElements = 2 * kHalf;
  BlockQ8_0 block{};
  // Without their sign the bits of floats order like magnitudes, NaN above infinity.
  std::int32_t largest = 0;
  for (int i = 0; i < kElements; ++i)
    largest = std::max(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  if (largest >= 0x7f800000) {
    block.d = 0x7e00;  // NaN
    return block;
  }
  const float d = std::bit_cast<float>(largest) / 127.0f;
  block.d = f32_to_f16(d);
  const float inverse = 1.0f / d;
  if (!(inverse <= std::numeric_limits<float>::max())) return block;  // d is 0, or so small that its f16 is 0
  std::int32_t whole[kElements];
  for (int i = 0; i < kElements; ++i) {
    // Halves away from zero: what truncation leaves of the magnitude doubles to 1 where it is half or more.
    const float scaled = x[i] * inverse;
    const auto inside = static_cast<std::int32_t>(scaled);
    whole[i] = inside + static_cast<std::int32_t>(2.0f * (scaled - static_cast<float>(inside)));
  }
  for (int i = 0; i < kElements; ++i) block.qs[i] = static_cast<std::int8_t>(whole[i]);
  return block;
}

void encode_q8_0(const float* row, std::int64_t elements, std::byte* blocks) noexcept {
  for (std::int64_t i = 0; i < elements; i += 2 * kHalf, blocks += sizeof(BlockQ8_0)) {
    const BlockQ8_0 block = encode_block_q8_0(row + i);
    std::memcpy(blocks, &block, sizeof(block));
  }
}

BlockQ4_0 encode_block_q4_0(const float* x) {
  BlockQ4_0 block{};
  const float largest = x[largest_of_block(x)];
  if (!(std::fabs(largest) < kTooLarge)) {  // or no number
    block.d = std::isnan(largest) ? Half{0x7e00} : Half{0x7c00};
    return block;
  }
  const Lanes low = load(x), high = load(x + kLanes);
  return block_of_q4_0(low, high, std::fabs(largest) > kTooSmall ? scale_of_q4_0(low, high, largest) : 0.0f);
}

void encode_q4_0(const float* row, std::int64_t elements, std::byte* blocks) noexcept {
  for (std::int64_t i = 0; i < elements; i += 2 * kHalf, blocks += sizeof(BlockQ4_0)) {
    const BlockQ4_0 block = encode_block_q4_0(row + i);
    std::memcpy(blocks, &block, sizeof(block));
  }
}

}  // namespace

const Codec kCodecQ4_0{DType::q4_0, decode_blocks<BlockQ4_0, 32, decode_q4_0>,
                       blocks_finite<BlockQ4_0, 32, &BlockQ4_0::d>, encode_q4_0};
const Codec kCodecQ4_1{DType::q4_1, decode_blocks<BlockQ4_1, 32, decode_q4_1>,
                       blocks_finite<BlockQ4_1, 32, &BlockQ4_1::d, &BlockQ4_1::m>, nullptr};
const Codec kCodecQ5_0{DType::q5_0, decode_blocks<BlockQ5_0, 32, decode_q5_0>,
                       blocks_finite<BlockQ5_0, 32, &BlockQ5_0::d>, nullptr};
const Codec kCodecQ5_1{DType::q5_1, decode_blocks<BlockQ5_1, 32, decode_q5_1>,
                       blocks_finite<BlockQ5_1, 32, &BlockQ5_1::d, &BlockQ5_1::m>, nullptr};
const Codec kCodecQ8_0{DType::q8_0, decode_blocks<BlockQ8_0, 32, decode_q8_0>,
                       blocks_finite<BlockQ8_0, 32, &BlockQ8_0::d>, encode_q8_0};
const Codec kCodecIQ4NL{DType::iq4_nl, decode_blocks<BlockIQ4NL, 32, decode_iq4_nl>,
                        blocks_finite<BlockIQ4NL, 32, &BlockIQ4NL::d>, nullptr};
const Codec kCodecMxfp4{DType::mxfp4, decode_blocks<BlockMxfp4, 32, decode_mxfp4>, mxfp4_finite, nullptr};

}  // namespace kvtide
