#include "kernels/dense.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "kernels/kernels.h"
#include "tests/kernels/same_bits.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::normals;
using testing::same_bits;

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr float kUntouched = -7.5f;

struct Shape {
  std::int64_t m, n, dim;
};
// One query, counts around the widths of vectors and of tiles of queries, and the sizes of real blocks.
constexpr Shape kShapes[] = {{1, 16, 16}, {2, 32, 48},  {3, 16, 80},  {4, 48, 64},  {5, 64, 32},
                             {7, 16, 96}, {8, 112, 16}, {9, 32, 128}, {96, 256, 64}};
constexpr std::int64_t kLengths[] = {16, 32, 48, 64, 80, 256, 1008};

std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }
double real(float x) { return static_cast<double>(x); }

TEST(DenseDots, EqualPlainLoopsInDouble_AndWriteNothingElse) {
  for (const Kernels* kernels : available_kernels())
    for (const auto& [m, n, dim] : kShapes) {
      const auto q = normals(size_of(m * dim), 1), k = normals(size_of(n * dim), 2);
      std::vector<float> out(size_of(m * n) + 1, kUntouched);
      kernels->dense.dots(q.data(), m, k.data(), n, dim, 0.125f, out.data());
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0.0, size = 0.0;
          for (std::int64_t d = 0; d < dim; ++d) {
            const double term = real(q[size_of(i * dim + d)]) * real(k[size_of(j * dim + d)]);
            sum += term;
            size += std::fabs(term);
          }
          ASSERT_NEAR(out[size_of(i * n + j)], 0.125 * sum, 0.125 * 2e-6 * size)
              << kernels->isa << " " << m << "x" << n << "x" << dim << " at " << i << ", " << j;
        }
      EXPECT_EQ(out.back(), kUntouched);
    }
}

TEST(DenseMix, EqualsPlainLoopsInDouble_AndWritesNothingElse) {
  for (const Kernels* kernels : available_kernels())
    for (const auto& [m, n, dim] : kShapes) {
      const auto p = normals(size_of(m * n), 3), v = normals(size_of(n * dim), 4);
      std::vector<float> out(size_of(m * dim) + 1, kUntouched);
      kernels->dense.mix(p.data(), m, n, v.data(), dim, out.data());
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t d = 0; d < dim; ++d) {
          double sum = 0.0, size = 0.0;
          for (std::int64_t j = 0; j < n; ++j) {
            const double term = real(p[size_of(i * n + j)]) * real(v[size_of(j * dim + d)]);
            sum += term;
            size += std::fabs(term);
          }
          ASSERT_NEAR(out[size_of(i * dim + d)], sum, 1e-5 * size)
              << kernels->isa << " " << m << "x" << n << "x" << dim << " at " << i << ", " << d;
        }
      EXPECT_EQ(out.back(), kUntouched);
    }
}

TEST(DenseMix, TakesAnyNumberOfRows_WithTheSumsOfThoseUpToThere) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : {1, 5, 45}) {
      constexpr std::int64_t kMixed = 5, kRows = 48, kDim = 112;
      auto p = normals(size_of(kMixed * n), 21), v = normals(size_of(kRows * kDim), 22), padded = p;
      padded.assign(size_of(kMixed * kRows), 0.0f);
      for (std::int64_t i = 0; i < kMixed; ++i) std::copy_n(p.begin() + i * n, n, padded.begin() + i * kRows);
      std::vector<float> out(size_of(kMixed * kDim)), wanted(out);
      kernels->dense.mix(p.data(), kMixed, n, v.data(), kDim, out.data());
      kernels->dense.mix(padded.data(), kMixed, kRows, v.data(), kDim, wanted.data());
      EXPECT_TRUE(same_bits(out, wanted)) << kernels->isa << " " << n;
    }
}

TEST(DenseSoften, IsTheSoftmaxAndTheLogOfItsSum) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : kLengths) {
      const auto scores = normals(size_of(n), 5, 4.0f);
      for (const float offset : {0.0f, 300.0f, -300.0f}) {
        std::vector<float> x;
        for (const float score : scores) x.push_back(score + offset);
        x.push_back(kUntouched);
        const std::vector<float> before = x;
        const float got = kernels->dense.soften(x.data(), n);
        double sum = 0.0;
        for (std::int64_t j = 0; j < n; ++j) sum += std::exp(real(before[size_of(j)]) - real(offset));
        const double log_sum = real(offset) + std::log(sum);
        EXPECT_NEAR(got, log_sum, 1e-6 * (4.0 + std::fabs(log_sum))) << kernels->isa << " n " << n;
        for (std::int64_t j = 0; j < n; ++j) {
          const double wanted = std::exp(real(before[size_of(j)]) - real(offset)) / sum;
          ASSERT_NEAR(x[size_of(j)], wanted, 1e-5 * wanted) << kernels->isa << " n " << n << " at " << j;
        }
        EXPECT_EQ(x.back(), kUntouched);
      }
    }
}

TEST(DenseSoften, GivesNoShareToRowsWithoutMass) {
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> x(48, kNothing);
    x[3] = 2.0f;
    x[40] = 2.0f;
    EXPECT_NEAR(kernels->dense.soften(x.data(), 48), 2.0 + std::log(2.0), 1e-6) << kernels->isa;
    for (std::size_t j = 0; j < x.size(); ++j)
      EXPECT_EQ(x[j], j == 3 || j == 40 ? 0.5f : 0.0f) << kernels->isa << " at " << j;
  }
}

TEST(DenseSoften, OfNothingButRowsWithoutMassIsMinusInfinityAndZeros) {
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> x(32, kNothing);
    EXPECT_EQ(kernels->dense.soften(x.data(), 32), kNothing) << kernels->isa;
    for (const float share : x) EXPECT_EQ(share, 0.0f) << kernels->isa;
  }
}

TEST(DenseWeigh, GivesSharesOfMassesTimesFactors) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : kLengths) {
      std::vector<float> masses = normals(size_of(n), 41), times = normals(size_of(n), 42);
      double sum = 0.0;
      for (std::int64_t j = 0; j < n; ++j) {
        masses[size_of(j)] = std::fabs(masses[size_of(j)]);
        times[size_of(j)] = j % 3 == 0 ? 1.0f : std::fabs(times[size_of(j)]);
        sum += real(masses[size_of(j)]) * real(times[size_of(j)]);
      }
      std::vector<float> shares(size_of(n) + 1, kUntouched);
      EXPECT_NEAR(kernels->dense.weigh(masses.data(), times.data(), n, shares.data()), sum, 1e-5 * sum);
      for (std::int64_t j = 0; j < n; ++j)
        ASSERT_NEAR(shares[size_of(j)], real(masses[size_of(j)]) * real(times[size_of(j)]) / sum, 1e-6)
            << kernels->isa << " n " << n << " at " << j;
      EXPECT_EQ(shares.back(), kUntouched);
    }
}

TEST(DenseWeigh, OfRowsWithoutMassIsTheSmallestNormalNumber) {
  for (const Kernels* kernels : available_kernels()) {
    const std::vector<float> none(32, 0.0f), times(32, 2.0f);
    std::vector<float> shares(32, kUntouched);
    EXPECT_EQ(kernels->dense.weigh(none.data(), times.data(), 32, shares.data()),
              std::numeric_limits<float>::min());
    for (const float share : shares) EXPECT_EQ(share, 0.0f) << kernels->isa;
  }
}

TEST(DenseAddSquares, AddsTheSquareOfWeightTimesShare) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : kLengths) {
      const auto x = normals(size_of(n), 6), start = normals(size_of(n), 7);
      std::vector<float> sum = start;
      sum.push_back(kUntouched);
      kernels->dense.add_squares(x.data(), 0.75f, n, sum.data());
      for (std::int64_t j = 0; j < n; ++j) {
        const double term = 0.75 * real(x[size_of(j)]), first = real(start[size_of(j)]);
        ASSERT_NEAR(sum[size_of(j)], first + term * term, 1e-6 * (std::fabs(first) + term * term))
            << kernels->isa << " n " << n;
      }
      EXPECT_EQ(sum.back(), kUntouched);
    }
}

TEST(DenseAddLosses, AddsTheSquareOfWeightTimesShareTimesDistance) {
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : kLengths) {
      const auto p = normals(size_of(n), 8), products = normals(size_of(n), 9);
      const float oo = 1.25f;
      std::vector<float> vv, sum(size_of(n) + 1, 0.5f);
      for (const float x : normals(size_of(n), 10)) vv.push_back(x * x);
      sum.back() = kUntouched;
      kernels->dense.add_losses(p.data(), 0.5f, vv.data(), oo, products.data(), n, sum.data());
      int clipped = 0;
      for (std::size_t j = 0; j < size_of(n); ++j) {
        const double distance = real(vv[j]) + real(oo) - 2.0 * real(products[j]);
        clipped += distance < 0.0;
        const double term = 0.5 * real(p[j]);
        const double size = term * term * (real(vv[j]) + real(oo) + 2.0 * std::fabs(real(products[j])));
        ASSERT_NEAR(sum[j], 0.5 + term * term * std::max(0.0, distance), 1e-6 * (0.5 + size))
            << kernels->isa << " n " << n << " at " << j;
      }
      if (n >= 256) {
        EXPECT_GT(clipped, 0) << "no distance below zero was tried";
      }
      EXPECT_EQ(sum.back(), kUntouched);
    }
}

TEST(DenseWiden, GivesTheNumberOfEveryHalf) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wanted;
  for (const std::uint16_t half : halves) wanted.push_back(f16_to_f32(half));
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> got(halves.size(), kUntouched);
    kernels->dense.widen(halves.data(), static_cast<std::int64_t>(halves.size()), got.data());
    EXPECT_TRUE(same_bits(got, wanted)) << kernels->isa;
  }
}

// What many rows multiplied with themselves give, and something on the diagonal.
std::vector<float> positive(std::int64_t n) {
  const auto rows = normals(size_of(3 * n * n), 21);
  std::vector<float> h(size_of(n * n));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = i == j ? 1.0f : 0.0f;
      for (std::int64_t row = 0; row < 3 * n; ++row)
        sum += rows[size_of(row * n + i)] * rows[size_of(row * n + j)];
      h[size_of(i * n + j)] = sum;
    }
  return h;
}

TEST(DenseFactor, GivesTheMatrixBack_AndTheSameBitsInEveryTable) {
  for (const std::int64_t n : {32, 64, 96}) {
    const std::vector<float> wanted = positive(n);
    std::vector<float> first;
    for (const Kernels* kernels : available_kernels()) {
      std::vector<float> h = wanted, minus_u(size_of(n * n) + 1, kUntouched);
      kernels->dense.factor(h.data(), n, minus_u.data());
      EXPECT_EQ(minus_u.back(), kUntouched);
      if (first.empty()) first = minus_u;
      ASSERT_TRUE(same_bits(minus_u, first)) << kernels->isa;
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0.0;  // D lies on the diagonal of what h has become
          for (std::int64_t k = std::max(i, j); k < n; ++k) {
            const auto u = [&](std::int64_t row) {
              return row == k ? 1.0 : -real(minus_u[size_of(row * n + k)]);
            };
            sum += u(i) * real(h[size_of(k * n + k)]) * u(j);
          }
          ASSERT_NEAR(sum, real(wanted[size_of(i * n + j)]), 1e-3) << kernels->isa << " " << i << ", " << j;
        }
    }
  }
}

TEST(DenseRoundInTurn, IsWhatPlainLoopsGive_AndTheSameBitsInEveryTable) {
  constexpr std::int64_t kRows = 16;
  for (const std::int64_t n : {32, 64, 96}) {
    const auto x = normals(size_of(n * kRows), 31);
    std::vector<float> minus_u = normals(size_of(n * n), 32, 0.1f), first;
    for (std::int64_t k = 0; k < n; ++k) std::fill_n(minus_u.begin() + k * n, k + 1, 0.0f);
    const std::vector<float> scales(size_of(n / 32 * kRows), 0.25f), inverses(scales.size(), 4.0f);
    for (const Kernels* kernels : available_kernels()) {
      std::vector<float> codes(x.size() + 1, kUntouched);
      kernels->dense.round_in_turn(x.data(), n, scales.data(), inverses.data(), minus_u.data(), codes.data());
      EXPECT_EQ(codes.back(), kUntouched);
      if (first.empty()) first = codes;
      ASSERT_TRUE(same_bits(codes, first)) << kernels->isa;
    }
    for (std::int64_t row = 0; row < kRows; ++row) {
      std::vector<double> off;
      for (std::int64_t k = 0; k < n; ++k) {
        double target = real(x[size_of(k * kRows + row)]);
        for (std::int64_t j = 0; j < k; ++j) target += off[size_of(j)] * real(minus_u[size_of(j * n + k)]);
        const double code = real(first[size_of(k * kRows + row)]);
        ASSERT_LE(std::fabs(std::clamp(target / 0.25, -8.0, 7.0) - code), 0.501)
            << n << " " << row << " " << k;
        ASSERT_EQ(code, std::nearbyint(code));
        off.push_back(0.25 * code - real(x[size_of(k * kRows + row)]));
      }
    }
  }
}

TEST(Dense, EveryTableGivesTheSameBits) {
  const DenseRow& scalar = kernels_by_name("scalar").dense;
  for (const Kernels* kernels : available_kernels()) {
    const DenseRow& other = kernels->dense;
    for (const auto& [m, n, dim] : kShapes) {
      SCOPED_TRACE(std::string(kernels->isa) + " " + std::to_string(m) + "x" + std::to_string(n) + "x" +
                   std::to_string(dim));
      const auto q = normals(size_of(m * dim), 12), k = normals(size_of(n * dim), 13, 2.0f);
      std::vector<float> wanted(size_of(m * n)), got(wanted);
      scalar.dots(q.data(), m, k.data(), n, dim, 0.3f, wanted.data());
      other.dots(q.data(), m, k.data(), n, dim, 0.3f, got.data());
      ASSERT_TRUE(same_bits(got, wanted)) << "dots";
      std::vector<float> sums(size_of(n), 0.1f), other_sums(sums);
      for (std::int64_t i = 0; i < m; ++i) {
        float *row = wanted.data() + i * n, *other_row = got.data() + i * n;
        const float weight = 0.1f + static_cast<float>(i) * 0.07f;
        if (i == 1) row[0] = other_row[0] = kNothing;
        const float mass = scalar.soften(row, n), other_mass = other.soften(other_row, n);
        ASSERT_TRUE(same_bits(other_mass, mass)) << "soften";
        std::vector<float> shares(size_of(n)), other_shares(shares);
        const float sum = scalar.weigh(row, k.data(), n, shares.data()),
                    other_sum = other.weigh(other_row, k.data(), n, other_shares.data());
        ASSERT_TRUE(same_bits(other_sum, sum) && same_bits(other_shares, shares)) << "weigh";
        scalar.add_squares(row, weight, n, sums.data());
        other.add_squares(other_row, weight, n, other_sums.data());
        ASSERT_TRUE(same_bits(other_sums, sums)) << "add_squares";
        scalar.add_losses(row, weight, k.data(), 0.7f, q.data(), std::min(n, m * dim), sums.data());
        other.add_losses(other_row, weight, k.data(), 0.7f, q.data(), std::min(n, m * dim),
                         other_sums.data());
        ASSERT_TRUE(same_bits(other_sums, sums)) << "add_losses";
      }
      ASSERT_TRUE(same_bits(got, wanted)) << "soften";
      std::vector<float> mixed(size_of(m * dim)), other_mixed(mixed);
      scalar.mix(wanted.data(), m, n, k.data(), dim, mixed.data());
      other.mix(got.data(), m, n, k.data(), dim, other_mixed.data());
      ASSERT_TRUE(same_bits(other_mixed, mixed)) << "mix";
    }
  }
}

}  // namespace
}  // namespace kvtide
