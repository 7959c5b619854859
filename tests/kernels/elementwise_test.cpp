#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/same_bits.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::normals;
using testing::same_bits;

constexpr std::int64_t kRowLengths[] = {1, 2, 8, 15, 16, 17, 31, 33, 64, 100, 576, 1009};

TEST(RmsNorm, EqualsTheFormulaInDouble) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : kRowLengths) {
      const auto x = normals(n, 1, 3.0f), weight = normals(n, 2);
      std::vector<float> y(n + 1, -7.5f);
      kernels->elementwise.rms_norm(x.data(), weight.data(), n, 1e-5f, y.data());
      double squares = 0.0;
      for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double wanted = static_cast<double>(x[i]) * factor * static_cast<double>(weight[i]);
        ASSERT_NEAR(y[i], wanted, 5e-6 * std::fabs(wanted)) << kernels->isa << " n " << n << " at " << i;
      }
      EXPECT_EQ(y.back(), -7.5f);
    }
}

TEST(RmsNorm, WorksInPlace_AndIsZeroForZeros) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : kRowLengths) {
      auto x = normals(n, 3);
      const auto weight = normals(n, 4);
      std::vector<float> y(x.size());
      kernels->elementwise.rms_norm(x.data(), weight.data(), n, 1e-6f, y.data());
      kernels->elementwise.rms_norm(x.data(), weight.data(), n, 1e-6f, x.data());
      EXPECT_TRUE(same_bits(x, y)) << kernels->isa << " n " << n;
      std::vector<float> zeros(x.size(), 0.0f);
      kernels->elementwise.rms_norm(zeros.data(), weight.data(), n, 1e-6f, zeros.data());
      for (const float v : zeros) EXPECT_EQ(v, 0.0f);
    }
}

TEST(RmsNorm, SpreadsANanOverTheWholeRow) {
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> x(40, 1.0f), weight(40, 1.0f), y(40);
    x[37] = std::nanf("");
    kernels->elementwise.rms_norm(x.data(), weight.data(), 40, 1e-6f, y.data());
    for (const float v : y) EXPECT_TRUE(std::isnan(v)) << kernels->isa;
  }
}

TEST(Rope, RotatesEveryPairByItsAngle) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t half : {1, 4, 8, 16, 20, 32, 40, 128}) {
      const auto x = normals(2 * half, 5);
      std::vector<float> cosine, sine, y = x;
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = 0.37 * static_cast<double>(i + 1);
        cosine.push_back(static_cast<float>(std::cos(angle)));
        sine.push_back(static_cast<float>(std::sin(angle)));
      }
      y.push_back(-7.5f);
      kernels->elementwise.rope(y.data(), cosine.data(), sine.data(), half);
      for (std::size_t i = 0; i < static_cast<std::size_t>(half); ++i) {
        const double angle = 0.37 * static_cast<double>(i + 1);
        const double a = static_cast<double>(x[i]),
                     b = static_cast<double>(x[i + static_cast<std::size_t>(half)]);
        const double bound = 4e-7 * (std::fabs(a) + std::fabs(b));
        ASSERT_NEAR(y[i], a * std::cos(angle) - b * std::sin(angle), bound)
            << kernels->isa << " half " << half;
        ASSERT_NEAR(y[i + static_cast<std::size_t>(half)], b * std::cos(angle) + a * std::sin(angle), bound)
            << kernels->isa << " half " << half;
      }
      EXPECT_EQ(y.back(), -7.5f);
    }
}

TEST(Rope, ByAnAngleOfZeroChangesNoBit) {
  for (const Kernels* kernels : available_kernels()) {
    const auto x = normals(80, 6);
    const std::vector<float> ones(40, 1.0f), zeros(40, 0.0f);
    auto y = x;
    kernels->elementwise.rope(y.data(), ones.data(), zeros.data(), 40);
    EXPECT_TRUE(same_bits(y, x)) << kernels->isa;
  }
}

// Relative error of silu(x) / x = 1 / (1 + e^-x): the accuracy of our own exponential.
TEST(SiluMul, FollowsTheExponentialToAFewUnitsInTheLastPlace) {
  std::vector<float> gate, up;
  for (double x = -86.0; x <= 86.0; x += 1.0 / 512.0) gate.push_back(static_cast<float>(x));
  for (const float tiny : {1e-3f, -1e-3f, 1e-7f, -1e-20f, 1e-38f}) gate.push_back(tiny);
  up.assign(gate.size(), 1.0f);
  for (const Kernels* kernels : available_kernels()) {
    auto y = gate;
    kernels->elementwise.silu_mul(y.data(), up.data(), static_cast<std::int64_t>(y.size()));
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double x = static_cast<double>(gate[i]);
      const double wanted = x / (1.0 + std::exp(-x));
      ASSERT_NEAR(y[i], wanted, 5e-7 * std::fabs(wanted)) << kernels->isa << " silu(" << x << ")";
    }
  }
}

TEST(SiluMul, IsTheIdentityForLargeArguments_AndVanishesForLargeNegativeOnes) {
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> gate = {100.0f, 1e4f, 1e30f, -100.0f, -1e4f, -1e30f, 0.0f, std::nanf("")};
    const std::vector<float> up(8, 2.0f);
    kernels->elementwise.silu_mul(gate.data(), up.data(), 8);
    EXPECT_EQ(gate[0], 200.0f);
    EXPECT_EQ(gate[1], 2e4f);
    EXPECT_EQ(gate[2], 2e30f);
    for (const int i : {3, 4, 5, 6})
      EXPECT_NEAR(gate[static_cast<std::size_t>(i)], 0.0f, 1e-7) << kernels->isa << i;
    EXPECT_TRUE(std::isnan(gate[7])) << kernels->isa;
  }
}

TEST(LayerNorm, EqualsTheFormulaInDouble_AlsoInPlace) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : kRowLengths) {
      auto x = normals(n, 31, 3.0f);
      for (float& v : x) v += 5.0f;  // far from zero, so that the mean matters
      const auto weight = normals(n, 32), bias = normals(n, 33);
      std::vector<float> y(n + 1, -7.5f);
      kernels->elementwise.layer_norm(x.data(), weight.data(), bias.data(), n, 1e-5f, y.data());
      double mean = 0.0, squares = 0.0;
      for (const float v : x) mean += static_cast<double>(v) / static_cast<double>(n);
      for (const float v : x) squares += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double wanted = (static_cast<double>(x[i]) - mean) * factor * static_cast<double>(weight[i]) +
                              static_cast<double>(bias[i]);
        // A single element is its own mean: what rounding leaves is magnified by 1 / sqrt(epsilon).
        ASSERT_NEAR(y[i], wanted, 2e-5 * (1.0 + std::fabs(wanted)))
            << kernels->isa << " n " << n << " at " << i;
      }
      EXPECT_EQ(y.back(), -7.5f);
      y.pop_back();
      kernels->elementwise.layer_norm(x.data(), weight.data(), bias.data(), n, 1e-5f, x.data());
      EXPECT_TRUE(same_bits(x, y)) << kernels->isa << " n " << n;
    }
}

TEST(LayerNorm, GivesTheSameBitsOnEveryInstructionSet) {
  for (const std::int64_t n : kRowLengths) {
    const auto x = normals(n, 34), weight = normals(n, 35), bias = normals(n, 36);
    std::vector<float> wanted(x.size()), y(x.size());
    kernels_by_name("scalar").elementwise.layer_norm(x.data(), weight.data(), bias.data(), n, 1e-6f,
                                                     wanted.data());
    for (const Kernels* kernels : available_kernels()) {
      kernels->elementwise.layer_norm(x.data(), weight.data(), bias.data(), n, 1e-6f, y.data());
      EXPECT_TRUE(same_bits(y, wanted)) << kernels->isa << " n " << n;
    }
  }
}

TEST(Gelu, EqualsTheTanhFormInDouble) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : kRowLengths) {
      const auto x = normals(n, 37, 4.0f);
      auto y = x;
      kernels->elementwise.gelu(y.data(), n);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double v = static_cast<double>(x[i]);
        const double wanted = 0.5 * v * (1.0 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
        ASSERT_NEAR(y[i], wanted, 4e-6 * std::fabs(v) + 1e-7) << kernels->isa << " x " << v;
      }
    }
}

TEST(GeluMul, EqualsTheTanhFormInDouble) {
  std::vector<float> gate;
  for (double x = -12.0; x <= 12.0; x += 1.0 / 256.0) gate.push_back(static_cast<float>(x));
  for (const float x : {-1e4f, -1e20f, 1e4f, 1e20f}) gate.push_back(x);
  const auto up = normals(gate.size(), 7);
  for (const Kernels* kernels : available_kernels()) {
    auto y = gate;
    kernels->elementwise.gelu_mul(y.data(), up.data(), static_cast<std::int64_t>(y.size()));
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double x = static_cast<double>(gate[i]);
      const double u = std::sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
      const double wanted = 0.5 * x * (1.0 + std::tanh(u)) * static_cast<double>(up[i]);
      // In the left tail 1 + tanh cancels in the reference, not in the kernel: hence the absolute part.
      ASSERT_NEAR(y[i], wanted, 3e-6 * std::fabs(wanted) + 1e-10) << kernels->isa << " gelu(" << x << ")";
    }
  }
}

TEST(SoftCap, EqualsTheFormulaInDouble) {
  std::vector<float> x;
  for (double v = -200.0; v <= 200.0; v += 1.0 / 16.0) x.push_back(static_cast<float>(v));
  for (const float v : {-1e20f, 1e20f}) x.push_back(v);
  for (const Kernels* kernels : available_kernels())
    for (const float cap : {30.0f, 5.0f}) {
      auto y = x;
      kernels->elementwise.soft_cap(y.data(), cap, static_cast<std::int64_t>(y.size()));
      for (std::size_t i = 0; i < y.size(); ++i) {
        const double wide = static_cast<double>(cap);
        ASSERT_NEAR(y[i], wide * std::tanh(static_cast<double>(x[i]) / wide), 4e-7 * wide)
            << kernels->isa << " x " << x[i];
      }
    }
}

TEST(Elementwise, AddsAndScalesWithOneRounding) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : kRowLengths) {
      const auto x = normals(n, 8), y = normals(n, 9);
      auto sum = x, scaled = x;
      sum.push_back(-7.5f);
      scaled.push_back(-7.5f);
      kernels->elementwise.add(sum.data(), y.data(), n);
      kernels->elementwise.scale(scaled.data(), 0.3f, n);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(sum[i], static_cast<float>(static_cast<double>(x[i]) + static_cast<double>(y[i])));
        ASSERT_EQ(scaled[i], static_cast<float>(static_cast<double>(x[i]) * static_cast<double>(0.3f)));
      }
      EXPECT_EQ(sum.back(), -7.5f);
      EXPECT_EQ(scaled.back(), -7.5f);
    }
}

// Everything at once, on ordinary, huge, tiny and broken numbers.
std::vector<float> all_results(const ElementwiseRow& row, const std::vector<float>& x,
                               const std::vector<float>& y) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> out;
  const auto keep = [&](const std::vector<float>& values) {
    out.insert(out.end(), values.begin(), values.end());
  };
  auto a = x;
  row.rms_norm(x.data(), y.data(), n, 1e-6f, a.data());
  keep(a);
  a = x;
  row.silu_mul(a.data(), y.data(), n);
  keep(a);
  a = x;
  row.gelu_mul(a.data(), y.data(), n);
  keep(a);
  a = x;
  row.soft_cap(a.data(), 30.0f, n);
  keep(a);
  a = x;
  row.add(a.data(), y.data(), n);
  keep(a);
  a = x;
  row.scale(a.data(), 1.7f, n);
  keep(a);
  a = x;
  row.rope(a.data(), y.data(), y.data() + n / 2, n / 2);
  keep(a);
  return out;
}

TEST(Elementwise, GivesTheSameBitsOnEveryTable) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::int64_t n : kRowLengths)
    for (const float scale : {1.0f, 1e-20f, 1e-40f, 1e18f, 3e37f, 50.0f}) {
      auto x = normals(n, 10, scale);
      const auto y = normals(n, 11);
      for (const float broken : {0.0f, -0.0f, std::nanf(""), kInf, -kInf}) {
        x[static_cast<std::size_t>(n / 2)] = broken;
        const auto wanted = all_results(kElementwiseScalar, x, y);
        for (const Kernels* kernels : available_kernels())
          ASSERT_TRUE(same_bits(all_results(kernels->elementwise, x, y), wanted))
              << kernels->isa << " n " << n << " scale " << scale << " with " << broken;
      }
    }
}

}  // namespace
}  // namespace kvtide
