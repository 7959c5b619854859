// ElementwiseRow::quantize: activations in 8 bits per block of 32.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/same_bits.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

struct Quantized {
  std::vector<std::int8_t> q;
  std::vector<float> d, d_sum;
  std::vector<std::int32_t> sum16;
};

Quantized quantize(const ElementwiseRow& row, const std::vector<float>& x) {
  Quantized out{std::vector<std::int8_t>(x.size()), std::vector<float>(x.size() / 32),
                std::vector<float>(x.size() / 32), std::vector<std::int32_t>(x.size() / 16)};
  row.quantize(x.data(), static_cast<std::int64_t>(x.size()), out.q.data(), out.d.data(), out.d_sum.data(),
               out.sum16.data());
  return out;
}

TEST(Quantize, KeepsEveryElementWithinHalfAStep) {
  for (const float scale : {1.0f, 1e-30f, 1e-6f, 1e6f, 1e36f}) {
    const auto x = testing::normals(32 * 50, 1, scale);
    for (const Kernels* kernels : available_kernels()) {
      const auto got = quantize(kernels->elementwise, x);
      for (std::size_t b = 0; b < got.d.size(); ++b) {
        float largest = 0.0f;
        for (std::size_t i = b * 32; i < b * 32 + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
        EXPECT_EQ(got.d[b], largest / 127.0f) << kernels->isa;
        for (std::size_t i = b * 32; i < b * 32 + 32; ++i) {
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
  const auto x = testing::normals(32 * 50, 2);
  for (const Kernels* kernels : available_kernels()) {
    const auto got = quantize(kernels->elementwise, x);
    for (std::size_t half = 0; half < got.sum16.size(); ++half) {
      std::int32_t sum = 0;
      for (std::size_t i = half * 16; i < half * 16 + 16; ++i) sum += got.q[i];
      ASSERT_EQ(got.sum16[half], sum) << kernels->isa;
    }
    for (std::size_t b = 0; b < got.d.size(); ++b)
      ASSERT_EQ(got.d_sum[b], got.d[b] * static_cast<float>(got.sum16[2 * b] + got.sum16[2 * b + 1]));
  }
}

TEST(Quantize, ReachesTheFullRangeOnBothSides_AndItsSumsToo) {
  std::vector<float> x(96, 3.0f);
  for (std::size_t i = 32; i < 64; ++i) x[i] = -3.0f;
  for (std::size_t i = 64; i < 96; ++i) x[i] = i % 2 == 0 ? 3.0f : -3.0f;
  for (const Kernels* kernels : available_kernels()) {
    const auto got = quantize(kernels->elementwise, x);
    EXPECT_EQ(got.q[0], 127);
    EXPECT_EQ(got.q[32], -127);
    EXPECT_EQ(got.sum16, (std::vector<std::int32_t>{2032, 2032, -2032, -2032, 0, 0})) << kernels->isa;
  }
}

TEST(Quantize, TurnsZerosIntoZeros) {
  for (const Kernels* kernels : available_kernels())
    for (const float zero : {0.0f, -0.0f}) {
      const auto got = quantize(kernels->elementwise, std::vector<float>(64, zero));
      EXPECT_EQ(got.q, std::vector<std::int8_t>(64, 0));
      EXPECT_EQ(got.d, std::vector<float>(2, 0.0f));
      EXPECT_EQ(got.d_sum, std::vector<float>(2, 0.0f));
      EXPECT_EQ(got.sum16, std::vector<std::int32_t>(4, 0));
    }
}

TEST(Quantize, MarksABlockWithNanOrInfinity_AndNoOther) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const Kernels* kernels : available_kernels())
    for (const float broken : {std::nanf(""), -std::nanf(""), kInf, -kInf})
      for (std::size_t at = 32; at < 64; ++at) {
        std::vector<float> x = testing::normals(96, 3);
        x[at] = broken;
        const auto got = quantize(kernels->elementwise, x);
        ASSERT_TRUE(std::isnan(got.d[1])) << kernels->isa << " " << broken << " at " << at;
        ASSERT_TRUE(std::isnan(got.d_sum[1])) << kernels->isa << " " << broken << " at " << at;
        for (const std::size_t other : {std::size_t{0}, std::size_t{2}}) {
          ASSERT_TRUE(std::isfinite(got.d[other])) << kernels->isa;
          ASSERT_TRUE(std::isfinite(got.d_sum[other])) << kernels->isa;
        }
      }
}

TEST(Quantize, MarksABlockOfOppositeInfinities) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> x(32, kInf);
  for (std::size_t i = 0; i < 32; i += 2) x[i] = -kInf;
  for (const Kernels* kernels : available_kernels())
    EXPECT_TRUE(std::isnan(quantize(kernels->elementwise, x).d[0])) << kernels->isa;
}

TEST(Quantize, OfNumbersTooSmallForAStepStaysWithinTheLargestOfThem) {
  // Below about 4e-37 the inverse of the step leaves f32.
  for (const float tiny : {1e-45f, 1e-41f, 1e-38f, 3e-37f, 5e-37f}) {
    std::vector<float> x(32, 0.0f);
    x[3] = tiny;
    x[5] = -tiny / 2;
    for (const Kernels* kernels : available_kernels()) {
      const auto got = quantize(kernels->elementwise, x);
      for (std::size_t i = 0; i < 32; ++i)
        EXPECT_NEAR(got.q[i] * static_cast<double>(got.d[0]), static_cast<double>(x[i]),
                    2 * static_cast<double>(tiny))
            << kernels->isa << " " << tiny << " at " << i;
      EXPECT_EQ(got.q[0], 0) << kernels->isa << ": a zero stays a zero beside " << tiny;
    }
  }
}

TEST(Quantize, GivesTheSameBitsOnEveryTable) {
  for (const float scale : {1.0f, 1e-44f, 1e-38f, 1e-36f, 1e38f}) {
    auto x = testing::normals(32 * 200, 4, scale);
    x[40] = std::nanf("");
    x[100] = std::numeric_limits<float>::infinity();
    // Ties of the rounding: multiples of half a step.
    for (std::size_t i = 320; i < 352; ++i) x[i] = (static_cast<float>(i) - 335.5f) * scale;
    x[320] = 127.0f * scale;
    const auto wanted = quantize(kElementwiseScalar, x);
    for (const Kernels* kernels : available_kernels()) {
      const auto got = quantize(kernels->elementwise, x);
      EXPECT_EQ(got.q, wanted.q) << kernels->isa << " scale " << scale;
      EXPECT_EQ(got.sum16, wanted.sum16) << kernels->isa << " scale " << scale;
      EXPECT_TRUE(testing::same_bits(got.d, wanted.d)) << kernels->isa << " scale " << scale;
      EXPECT_TRUE(testing::same_bits(got.d_sum, wanted.d_sum)) << kernels->isa << " scale " << scale;
    }
  }
}

}  // namespace
}  // namespace kvtide
