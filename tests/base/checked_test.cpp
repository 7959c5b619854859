#include "base/checked.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>

namespace kvtide {
namespace {

constexpr std::uint64_t kMax64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kLimit = 9223372036854775807u;  // 2^63 - 1

TEST(Checked, LargestSizeIsTheLargestSigned64BitNumber) { EXPECT_EQ(kLargestSize, kLimit); }

TEST(Checked, AddsUpToTheLimitAndNotBeyond) {
  EXPECT_EQ(checked_add(0, 0), 0u);
  EXPECT_EQ(checked_add(2, 3), 5u);
  EXPECT_EQ(checked_add(kLimit, 0), kLimit);
  EXPECT_EQ(checked_add(kLimit - 1, 1), kLimit);
  EXPECT_EQ(checked_add(kLimit, 1), std::nullopt);
  EXPECT_EQ(checked_add(kMax64, 0), std::nullopt);
}

TEST(Checked, RefusesASumThatWrapsAroundToASmallNumber) {
  EXPECT_EQ(checked_add(kMax64, 1), std::nullopt);
  EXPECT_EQ(checked_add(kMax64, kMax64), std::nullopt);
  EXPECT_EQ(checked_add(std::uint64_t{1} << 63, std::uint64_t{1} << 63), std::nullopt);
}

TEST(Checked, MultipliesUpToTheLimitAndNotBeyond) {
  EXPECT_EQ(checked_mul(0, kMax64), 0u);
  EXPECT_EQ(checked_mul(7, 6), 42u);
  EXPECT_EQ(checked_mul(1, kLimit), kLimit);
  EXPECT_EQ(checked_mul(std::uint64_t{1} << 31, std::uint64_t{1} << 31), std::uint64_t{1} << 62);
  EXPECT_EQ(checked_mul(std::uint64_t{1} << 31, std::uint64_t{1} << 32), std::nullopt);
}

TEST(Checked, RefusesAProductThatWrapsAroundToASmallNumber) {
  EXPECT_EQ(checked_mul(std::uint64_t{1} << 32, std::uint64_t{1} << 32), std::nullopt);  // 2^64 wraps to 0
  EXPECT_EQ(checked_mul(kMax64, kMax64), std::nullopt);                                  // wraps to 1
}

TEST(Checked, AlignsUpwards_LeavingAlignedValuesAlone) {
  EXPECT_EQ(checked_align(0, 32), 0u);
  EXPECT_EQ(checked_align(1, 32), 32u);
  EXPECT_EQ(checked_align(32, 32), 32u);
  EXPECT_EQ(checked_align(33, 32), 64u);
  EXPECT_EQ(checked_align(12345, 1), 12345u);
  EXPECT_EQ(checked_align(65537, 65536), 131072u);
}

TEST(Checked, RefusesToAlignPastTheLimit) {
  EXPECT_EQ(checked_align(kLimit, 2), std::nullopt);
  EXPECT_EQ(checked_align(kLimit - 30, 64), std::nullopt);
  EXPECT_EQ(checked_align(kMax64, 32), std::nullopt);
}

}  // namespace
}  // namespace kvtide
