// ElementwiseRow::quantize: activations in 8 bits per block of 32.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/quant_memory.h"
#include "tests/kernels/same_bits.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::QuantMemory;
using testing::same_bits;

// x as one row: entries follow each other.
QuantMemory<> quantize(const ElementwiseRow& table, const std::vector<float>& x) {
  return QuantMemory<>(table, x.data(), 1, static_cast<std::int64_t>(x.size()));
}

constexpr std::size_t kBlock = 32;

TEST(Quantize, KeepsEveryElementWithinHalfAStep) {
  for (const float scale : {1.0f, 1e-30f, 1e-6f, 1e6f, 1e36f}) {
    const auto x = testing::normals(kBlock * 20, 1, scale);
    for (const Kernels* kernels : available_kernels()) {
      const auto got = quantize(kernels->elementwise, x);
      for (std::size_t b = 0; b < got.d.size(); ++b) {
        float largest = 0.0f;
        for (std::size_t i = b * kBlock; i < (b + 1) * kBlock; ++i)
          largest = std::max(largest, std::fabs(x[i]));
        EXPECT_EQ(got.d[b], largest / 127.0f) << kernels->isa;
        for (std::size_t i = b * kBlock; i < (b + 1) * kBlock; ++i) {
          // Half a step, and what the rounding of x * (127 / largest) may add to it.
          const double step = static_cast<double>(got.d[b]);
          ASSERT_NEAR(got.q[i] * step, static_cast<double>(x[i]), step * (0.5 + 127 * 0x1p-22))
              << kernels->isa;
        }
      }
    }
  }
}

TEST(Quantize, StatesTheSumsOfItsQuants) {
  const auto x = testing::normals(kBlock * 20, 2);
  const auto k = static_cast<std::int64_t>(x.size());
  for (const Kernels* kernels : available_kernels()) {
    const auto got = quantize(kernels->elementwise, x);
    QuantMemory<> wanted(1, k);
    testing::lay_out(got.q.data(), got.d.data(), wanted.rows);
    EXPECT_EQ(got.minus_sums, wanted.minus_sums) << kernels->isa;
    EXPECT_EQ(got.d_sum, wanted.d_sum) << kernels->isa;
  }
}

TEST(Quantize, ReachesTheFullRangeOnBothSides_AndItsSumsToo) {
  std::vector<float> x(2 * kBlock, 3.0f);
  for (std::size_t i = kBlock; i < 2 * kBlock; ++i) x[i] = -3.0f;
  for (const Kernels* kernels : available_kernels()) {
    const auto got = quantize(kernels->elementwise, x);
    EXPECT_EQ(got.q[0], 127);
    EXPECT_EQ(got.q[kBlock], -127);
    const std::int32_t sum = 127 * 16;
    EXPECT_EQ(got.minus_sums.front(), -2 * sum) << kernels->isa;
    EXPECT_EQ(got.minus_sums.back(), sum) << kernels->isa;
  }
}

TEST(Quantize, MarksABlockWithNanOrInfinity_AndNoOther) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const Kernels* kernels : available_kernels())
    for (const float broken : {std::nanf(""), -std::nanf(""), kInf, -kInf})
      for (std::size_t at = kBlock; at < 2 * kBlock; ++at) {
        std::vector<float> x = testing::normals(3 * kBlock, 3);
        x[at] = broken;
        const auto got = quantize(kernels->elementwise, x);
        ASSERT_TRUE(std::isnan(got.d[1])) << kernels->isa << " " << broken << " at " << at;
        ASSERT_TRUE(std::isnan(got.d_sum[1])) << kernels->isa << " " << broken << " at " << at;
        for (const std::size_t other : {std::size_t{0}, std::size_t{2}})
          ASSERT_TRUE(std::isfinite(got.d[other])) << kernels->isa;
      }
}

TEST(Quantize, MarksABlockOfOppositeInfinities) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> x(kBlock, kInf);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -kInf;
  for (const Kernels* kernels : available_kernels())
    EXPECT_TRUE(std::isnan(quantize(kernels->elementwise, x).d[0])) << kernels->isa;
}

TEST(Quantize, OfNumbersTooSmallForAStepStaysWithinTheLargestOfThem) {
  // Below about 4e-37 the inverse of the step leaves f32.
  for (const float tiny : {1e-45f, 1e-41f, 1e-38f, 3e-37f, 5e-37f}) {
    std::vector<float> x(kBlock, 0.0f);
    x[3] = tiny;
    x[5] = -tiny / 2;
    for (const Kernels* kernels : available_kernels()) {
      const auto got = quantize(kernels->elementwise, x);
      for (std::size_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(got.q[i] * static_cast<double>(got.d[0]), static_cast<double>(x[i]),
                    2 * static_cast<double>(tiny))
            << kernels->isa << " " << tiny << " at " << i;
      EXPECT_EQ(got.q[0], 0) << kernels->isa << ": a zero stays a zero beside " << tiny;
    }
  }
}

TEST(Quantize, GivesTheSameBitsOnEveryTable) {
  for (const float scale : {1.0f, 1e-44f, 1e-38f, 1e-36f, 1e38f}) {
    auto x = testing::normals(kBlock * 50, 4, scale);
    x[40] = std::nanf("");
    x[700] = std::numeric_limits<float>::infinity();
    // Ties of the rounding: multiples of half a step.
    for (std::size_t i = 1024; i < 1056; ++i) x[i] = (static_cast<float>(i) - 1039.5f) * scale;
    x[1024] = 127.0f * scale;
    const auto wanted = quantize(kElementwiseScalar, x);
    for (const Kernels* kernels : available_kernels()) {
      const auto got = quantize(kernels->elementwise, x);
      EXPECT_EQ(got.q, wanted.q) << kernels->isa << " scale " << scale;
      EXPECT_EQ(got.minus_sums, wanted.minus_sums) << kernels->isa << " scale " << scale;
      EXPECT_TRUE(same_bits(got.d, wanted.d)) << kernels->isa << " scale " << scale;
      EXPECT_TRUE(same_bits(got.d_sum, wanted.d_sum)) << kernels->isa << " scale " << scale;
    }
  }
}

// Rows in groups have the quants of a row alone, side by side.
TEST(Quantize, LaysRowsOutInGroups) {
  const std::int64_t k = 512;
  for (const std::int64_t rows : {1, 2, 7, 8, 9, 16, 17, 35}) {
    const auto x = testing::normals(static_cast<std::size_t>(rows * k), 6);
    for (const Kernels* kernels : available_kernels()) {
      const QuantMemory<> got(kernels->elementwise, x.data(), rows, k);
      std::vector<std::int8_t> q;
      std::vector<float> d;
      for (std::int64_t m = 0; m < rows; ++m) {
        const QuantMemory<> alone(kernels->elementwise, x.data() + m * k, 1, k);
        q.insert(q.end(), alone.q.begin(), alone.q.end());
        d.insert(d.end(), alone.d.begin(), alone.d.end());
      }
      QuantMemory<> wanted(rows, k);
      testing::lay_out(q.data(), d.data(), wanted.rows);
      EXPECT_EQ(got.q, wanted.q) << kernels->isa << " rows " << rows;
      EXPECT_EQ(got.d, wanted.d) << kernels->isa << " rows " << rows;
      EXPECT_EQ(got.minus_sums, wanted.minus_sums) << kernels->isa << " rows " << rows;
      EXPECT_EQ(got.d_sum, wanted.d_sum) << kernels->isa << " rows " << rows;
    }
  }
}

}  // namespace
}  // namespace kvtide
