// Expected values are built from the definition of binary16 in double arithmetic, which holds all of them
// exactly.
#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kvtide {
namespace {

constexpr std::uint16_t kSign = 0x8000;
constexpr std::uint16_t kInfinity = 0x7c00;
constexpr std::uint16_t kLargest = 0x7bff;  // 65504

// The value of a finite, non-negative half by the definition of the format.
double value_of(std::uint16_t half) {
  const int exponent = half >> 10;
  const int mantissa = half & 0x3ff;
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, ReadsEveryFiniteBitPatternAsTheValueOfTheDefinition) {
  for (std::uint16_t half = 0; half <= kLargest; ++half) {
    ASSERT_EQ(static_cast<double>(f16_to_f32(half)), value_of(half)) << "bits " << half;
    ASSERT_EQ(static_cast<double>(f16_to_f32(half | kSign)), -value_of(half)) << "bits " << (half | kSign);
  }
}

TEST(Half, KeepsTheSignOfZeroInBothDirections) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(f16_to_f32(0x0000)), 0x00000000u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(f16_to_f32(0x8000)), 0x80000000u);
  EXPECT_EQ(f32_to_f16(0.0f), 0x0000);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
}

TEST(Half, RoundTripsAll65536BitPatterns_NaNsBecomingQuiet) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const bool is_nan = (half & 0x7fff) > kInfinity;
    const auto expected = static_cast<std::uint16_t>(is_nan ? half | 0x0200 : half);
    ASSERT_EQ(f32_to_f16(f16_to_f32(half)), expected) << "bits " << bits;
  }
}

TEST(Half, ReadsInfinitiesAndNaNs) {
  EXPECT_EQ(f16_to_f32(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(f16_to_f32(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7c01)));
  EXPECT_TRUE(std::isnan(f16_to_f32(0xffff)));
}

TEST(Half, RoundsToTheNearestNeighbour_AndTiesToTheEvenOne) {
  // The midpoint of two neighbouring halves is exact in an f32, and so are the f32 just beside it.
  for (std::uint16_t low = 0; low < kLargest; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const auto middle = static_cast<float>((value_of(low) + value_of(high)) / 2);
    ASSERT_EQ(f32_to_f16(middle), low % 2 == 0 ? low : high) << "tie above bits " << low;
    ASSERT_EQ(f32_to_f16(std::nextafterf(middle, 0.0f)), low) << "just below the tie above bits " << low;
    ASSERT_EQ(f32_to_f16(std::nextafterf(middle, 1e9f)), high) << "just above the tie above bits " << low;
    ASSERT_EQ(f32_to_f16(-middle), (low % 2 == 0 ? low : high) | kSign) << "negative tie of bits " << low;
  }
}

TEST(Half, OverflowsToInfinityFromTheMiddleBetweenTheLargestValueAndTheNextPowerOfTwo) {
  EXPECT_EQ(f32_to_f16(65504.0f), kLargest);
  EXPECT_EQ(f32_to_f16(std::nextafterf(65520.0f, 0.0f)), kLargest);
  EXPECT_EQ(f32_to_f16(65520.0f), kInfinity);  // the tie: infinity counts as even
  EXPECT_EQ(f32_to_f16(65536.0f), kInfinity);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::max()), kInfinity | kSign);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), kInfinity);
}

TEST(Half, UnderflowsToZeroAtHalfTheSmallestValueAndBelow) {
  EXPECT_EQ(f32_to_f16(0x1p-24f), 0x0001);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);  // the tie: zero is even
  EXPECT_EQ(f32_to_f16(std::nextafterf(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::denorm_min()), kSign);
}

TEST(Half, KeepsANaNANaN_EvenWhenItsPayloadLiesInTheBitsThatAreDropped) {
  const float low_payload = std::bit_cast<float>(0x7f800001u);
  EXPECT_GT(f32_to_f16(low_payload) & 0x7fff, kInfinity);
  EXPECT_GT(f32_to_f16(std::numeric_limits<float>::quiet_NaN()) & 0x7fff, kInfinity);
}

TEST(BFloat16, IsTheUpperHalfOfAnF32) {
  EXPECT_EQ(bf16_to_f32(0x3f80), 1.0f);
  EXPECT_EQ(bf16_to_f32(0xc049), -3.140625f);
  EXPECT_EQ(bf16_to_f32(0x7f80), std::numeric_limits<float>::infinity());
  EXPECT_EQ(bf16_to_f32(0x0001), std::ldexp(1.0f, -133));
  EXPECT_TRUE(std::isnan(bf16_to_f32(0x7fc0)));
}

}  // namespace
}  // namespace kvtide
