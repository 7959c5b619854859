// dense_rows.inl: rows of blocks of 32 elements on Lanes, as their codecs read and round them. Included by dense.inl.
#include <cstring>

#include "kernels/codec.h"
#include "kernels/four_bits.inl"

namespace kvtide {
namespace {

void numbers_of_q8_0(const std::byte* blocks, std::int64_t n, float* out) noexcept {
  for (std::int64_t i = 0; i < n; i += 2 * kLanes, blocks += sizeof(BlockQ8_0)) {
    BlockQ8_0 block;
    std::memcpy(&block, blocks, sizeof(block));
    const Lanes scale = set1(from_half(block.d));
    store(out + i, mul(load(block.qs), scale));
    store(out + i + kLanes, mul(load(block.qs + kLanes), scale));
  }
}

void numbers_of_q4_0(const std::byte* blocks, std::int64_t n, float* out) noexcept {
  for (std::int64_t i = 0; i < n; i += 2 * kLanes, blocks += sizeof(BlockQ4_0)) {
    BlockQ4_0 block;
    std::memcpy(&block, blocks, sizeof(block));
    const Lanes scale = set1(from_half(block.d));
    store(out + i, mul(load_nibbles(block.qs, 0), scale));
    store(out + i + kLanes, mul(load_nibbles(block.qs, 4), scale));
  }
}

inline void round_block(const float* x, std::byte* out) {
  const Lanes low = load(x), high = load(x + kLanes), zero = set1(0.0f);
  const float highest = reduce_max(max(low, high)),
              lowest = -reduce_max(max(sub(zero, low), sub(zero, high)));
  const float size = reduce_add(add(abs(low), abs(high)));
  // What is rare is left to the codec: no number, too large or too small, or the same size with both signs.
  const float largest = highest > -lowest ? highest : lowest;
  if (!(size < kTooLarge) || highest == -lowest || !(__builtin_fabsf(largest) > kTooSmall))
    return encode_row(DType::q4_0, x, 2 * kLanes, out);
  const BlockQ4_0 block = block_of_q4_0(low, high, scale_of_q4_0(low, high, largest));
  std::memcpy(out, &block, sizeof(block));
}

void round_to_q4_0(const float* x, std::int64_t n, std::byte* blocks) noexcept {
  for (std::int64_t i = 0; i < n; i += 2 * kLanes, blocks += sizeof(BlockQ4_0)) round_block(x + i, blocks);
}

}  // namespace
}  // namespace kvtide
