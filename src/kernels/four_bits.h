// four_bits.h: how 32 elements become a block of q4_0. The codec and the kernels of dense.h do it alike, bit for bit.
//
// The largest element is taken for so many steps, in five ways. Each gives integers, and these the scale that fits them
// best; the scale with the smallest squared error is kept. Of transformed rows it has an error within 4% of the best scale
// there is (four_bits_test.cpp). Constants of internal linkage: objects of one instruction set share nothing.
#pragma once

namespace kvtide {

constexpr float kLargestInSteps[] = {-8.0f, -7.2f, -8.8f, 7.0f, 7.8f};
// A largest element of this size and more is more than an f16 scale holds; one up to the other has a scale of 0.
constexpr float kTooLarge = 0x1p20f, kTooSmall = 0x1p-40f;

}  // namespace kvtide
