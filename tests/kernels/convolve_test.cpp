// convolve_test.cpp: a causal convolution of every channel with silu, and gates: the formulas, and the same bits from every
// table.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.h"
#include "tests/kernels/same_bits.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::normals;
using testing::same_bits;

constexpr std::int64_t kLengths[] = {1, 5, 15, 16, 17, 33, 64, 150};

struct Case {
  std::vector<std::vector<float>> x;
  std::vector<float> taps, bias;
  ConvStep step;

  Case(std::int64_t n, int count, bool biased) : taps(normals(n * count, 7)), bias(normals(n, 8)) {
    step = {.x = {}, .taps = taps.data(), .bias = biased ? bias.data() : nullptr, .count = count, .n = n};
    for (int tap = 0; tap < count; ++tap) x.push_back(normals(n, 20 + tap));
    for (int tap = 0; tap < count; ++tap) step.x[tap] = x[static_cast<std::size_t>(tap)].data();
  }
};

TEST(ConvolveSilu, EqualsTheFormulaInDouble_WithTheSameBitsOnEveryTable) {
  for (const std::int64_t n : kLengths)
    for (const int count : {2, 3, 4, 16})
      for (const bool biased : {false, true}) {
        const Case c(n, count, biased);
        std::vector<float> wanted(static_cast<std::size_t>(n) + 1, -7.5f);
        kElementwiseScalar.convolve_silu(c.step, wanted.data());
        EXPECT_EQ(wanted.back(), -7.5f);
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
          double sum = biased ? static_cast<double>(c.bias[i]) : 0.0;
          for (std::size_t tap = 0; tap < c.x.size(); ++tap)
            sum += static_cast<double>(c.taps[tap * static_cast<std::size_t>(n) + i]) *
                   static_cast<double>(c.x[tap][i]);
          ASSERT_NEAR(wanted[i], sum / (1.0 + std::exp(-sum)), 1e-5) << n << " " << count;
        }
        for (const Kernels* kernels : available_kernels()) {
          std::vector<float> got(wanted.size(), -7.5f);
          kernels->elementwise.convolve_silu(c.step, got.data());
          EXPECT_TRUE(same_bits(got, wanted)) << kernels->isa << " " << n;
        }
      }
}

TEST(SigmoidMul, EqualsTheFormulaInDouble_WithTheSameBitsOnEveryTable) {
  for (const std::int64_t n : kLengths) {
    const auto x = normals(n, 1), gate = normals(n, 2, 4.0f);
    std::vector<float> wanted = x;
    kElementwiseScalar.sigmoid_mul(wanted.data(), gate.data(), n);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      ASSERT_NEAR(wanted[i], static_cast<double>(x[i]) / (1.0 + std::exp(-static_cast<double>(gate[i]))),
                  1e-6 * (1.0 + std::fabs(static_cast<double>(x[i]))));
    for (const Kernels* kernels : available_kernels()) {
      std::vector<float> got = x;
      kernels->elementwise.sigmoid_mul(got.data(), gate.data(), n);
      EXPECT_TRUE(same_bits(got, wanted)) << kernels->isa << " " << n;
    }
  }
}

}  // namespace
}  // namespace kvtide
