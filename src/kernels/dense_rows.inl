// dense_rows.inl: rows of blocks of 32 elements on Lanes, as their codecs read and round them. Included by dense.inl.
#include <cstring>

#include "kernels/codec.h"
#include "kernels/four_bits.h"
#include "tensor/blocks.h"

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

inline Lanes to_nibbles(const Lanes& scaled) { return round(max(min(scaled, set1(7.0f)), set1(-8.0f))); }

inline float scale_of_q4_0(const Lanes& low, const Lanes& high, float largest) {
  float best = 0.0f, taken = 0.0f;
  for (const float steps : kLargestInSteps) {
    const Lanes inverse = set1(1.0f / (largest / steps));
    const Lanes a = to_nibbles(mul(low, inverse)), b = to_nibbles(mul(high, inverse));
    const float product = reduce_add(add(mul(low, a), mul(high, b)));
    const float scale = product / reduce_add(add(mul(a, a), mul(b, b)));
    if (scale * product > taken) {
      best = scale;
      taken = scale * product;
    }
  }
  return best;
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
  std::uint16_t halves[kLanes];
  store(halves, set1(scale_of_q4_0(low, high, largest)));
  const float d = from_half(halves[0]);
  const Lanes inverse = set1(d == 0.0f ? 0.0f : 1.0f / d), eight = set1(8.0f);
  const Lanes a = add(to_nibbles(mul(low, inverse)), eight), b = add(to_nibbles(mul(high, inverse)), eight);
  const Lanes byte = add(a, mul(b, set1(16.0f)));
  std::int8_t bytes[kLanes];
  store_i8(bytes, select_less(byte, set1(128.0f), byte, sub(byte, set1(256.0f))));
  BlockQ4_0 block;
  block.d = halves[0];
  std::memcpy(block.qs, bytes, sizeof(block.qs));
  std::memcpy(out, &block, sizeof(block));
}

void round_to_q4_0(const float* x, std::int64_t n, std::byte* blocks) noexcept {
  for (std::int64_t i = 0; i < n; i += 2 * kLanes, blocks += sizeof(BlockQ4_0)) round_block(x + i, blocks);
}

}  // namespace
}  // namespace kvtide
