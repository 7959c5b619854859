// four_bits.inl: how 32 elements become a block of q4_0, on Lanes; included by the codec and by dense_rows.inl.
//
// The largest element is taken for so many steps, in five ways. Each gives integers q, and these the scale that fits the
// elements x best: xq / qq, which takes xq^2 / qq off the squared error. The best of the five is kept. Of transformed rows it
// has an error within 4% of the best scale there is (four_bits_test.cpp). Integers are rounded to nearest, ties to even.
#include "tensor/blocks.h"

namespace kvtide {
namespace {

constexpr float kLargestInSteps[] = {-8.0f, -7.2f, -8.8f, 7.0f, 7.8f};
// A largest element of this size and more is more than an f16 scale holds; one up to the other has a scale of 0.
constexpr float kTooLarge = 0x1p20f, kTooSmall = 0x1p-40f;

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

inline BlockQ4_0 block_of_q4_0(const Lanes& low, const Lanes& high, float scale) {
  std::uint16_t halves[kLanes];
  store(halves, set1(scale));
  const float d = from_half(halves[0]);
  const Lanes inverse = set1(d == 0.0f ? 0.0f : 1.0f / d), eight = set1(8.0f);
  const Lanes a = add(to_nibbles(mul(low, inverse)), eight), b = add(to_nibbles(mul(high, inverse)), eight);
  const Lanes byte = add(a, mul(b, set1(16.0f)));
  std::int8_t bytes[kLanes];
  store_i8(bytes, select_less(byte, set1(128.0f), byte, sub(byte, set1(256.0f))));
  BlockQ4_0 block;
  block.d = halves[0];
  std::memcpy(block.qs, bytes, sizeof(block.qs));
  return block;
}

}  // namespace
}  // namespace kvtide
