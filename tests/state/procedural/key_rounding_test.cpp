// Keys in four bits that make up for what they are off, as far as queries see it.
#include "state/procedural/key_rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/codec.h"
#include "kernels/hadamard.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::normals;

constexpr std::int64_t kDim = 64, kQueries = 96, kKeys = 37;
constexpr std::size_t kRowBytes = kDim / 32 * 18;

// Queries that ask for some directions much more than for others.
ReferenceRows uneven_queries(std::uint64_t seed) {
  ReferenceRows asked;
  asked.count = kQueries;
  asked.queries = normals(static_cast<std::size_t>(kQueries * kDim), seed);
  for (std::size_t i = 0; i < asked.queries.size(); ++i)
    asked.queries[i] *= std::exp(-0.05f * static_cast<float>(i % kDim));
  return asked;
}
BlockRows some_keys() {
  BlockRows block = padded_block(kKeys, kDim);
  const std::vector<float> numbers = normals(static_cast<std::size_t>(kKeys * kDim), 7);
  std::copy(numbers.begin(), numbers.end(), block.keys.begin());
  return block;
}
std::vector<float> transformed(std::vector<float> rows) {
  for (std::size_t at = 0; at < rows.size(); at += kDim) hadamard(rows.data() + at, kDim);
  return rows;
}
std::vector<float> lying_keys() {
  const BlockRows block = some_keys();
  return transformed({block.keys.begin(), block.keys.begin() + kKeys * kDim});
}

std::vector<std::byte> rounded(const Kernels& kernels, const std::vector<float>& rows) {
  std::vector<std::byte> blocks(rows.size() / kDim * kRowBytes);
  kernels.dense.round_to_q4_0(rows.data(), std::ssize(rows), blocks.data());
  return blocks;
}
std::vector<float> numbers_of(const std::vector<std::byte>& blocks) {
  std::vector<float> rows(blocks.size() / kRowBytes * kDim);
  decode_row(DType::q4_0, blocks.data(), std::ssize(rows), rows.data());
  return rows;
}
// Of the scores of these queries, squared.
double error_of(const std::vector<std::byte>& blocks, const ReferenceRows& asked) {
  const std::vector<float> rows = lying_keys(), got = numbers_of(blocks),
                           queries = transformed(asked.queries);
  double sum = 0.0;
  for (std::size_t row = 0; row < rows.size(); row += kDim)
    for (std::size_t query = 0; query < queries.size(); query += kDim) {
      double off = 0.0;
      for (std::size_t d = 0; d < kDim; ++d)
        off += static_cast<double>(got[row + d] - rows[row + d]) * static_cast<double>(queries[query + d]);
      sum += off * off;
    }
  return sum;
}

TEST(KeyRounding, LeavesHalfOfTheErrorThatOtherQueriesOfTheKindSee) {
  const Kernels& kernels = best_kernels();
  std::vector<std::byte> blocks = rounded(kernels, lying_keys());
  const double nearest = error_of(blocks, uneven_queries(2));
  KeyRounding(kernels, uneven_queries(1), some_keys(), {}).improve(lying_keys(), blocks.data());
  EXPECT_LT(error_of(blocks, uneven_queries(2)), 0.6 * nearest);
}

TEST(KeyRounding, KeepsScales_AndEveryTableGivesTheSameBytes) {
  const std::vector<std::byte> before = rounded(best_kernels(), lying_keys());
  std::vector<std::byte> first;
  for (const Kernels* kernels : available_kernels()) {
    std::vector<std::byte> blocks = rounded(*kernels, lying_keys());
    KeyRounding(*kernels, uneven_queries(1), some_keys(), {}).improve(lying_keys(), blocks.data());
    if (first.empty()) first = blocks;
    EXPECT_EQ(blocks, first) << kernels->isa;
  }
  EXPECT_NE(first, before);
  for (std::size_t at = 0; at < first.size(); at += 18) {
    EXPECT_EQ(first[at], before[at]);
    EXPECT_EQ(first[at + 1], before[at + 1]);
  }
}

// A x = b, by elimination.
std::vector<double> solved(std::vector<std::vector<double>> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = k + 1; i < n; ++i) {
      const double times = a[i][k] / a[k][k];
      for (std::size_t j = k; j < n; ++j) a[i][j] -= times * a[k][j];
      b[i] -= times * b[k];
    }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

// The definition: an element is rounded from where it would stand if those behind it could make up for all the rest.
TEST(KeyRounding, RoundsEachElementFromTheBestPlaceThatIsLeft) {
  constexpr std::size_t n = kDim;
  const ReferenceRows asked = uneven_queries(1);
  const std::vector<float> queries = transformed(asked.queries), rows = lying_keys();
  std::vector<std::vector<double>> h(n, std::vector<double>(n));
  const auto add = [&](const std::vector<float>& of, double share) {
    double trace = 0.0;
    for (const float x : of) trace += static_cast<double>(x) * static_cast<double>(x);
    for (std::size_t at = 0; at < of.size(); at += n)
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j)
          h[i][j] += share / trace * static_cast<double>(of[at + i]) * static_cast<double>(of[at + j]);
  };
  add(queries, 1.0);
  add(rows, 0.3);
  for (std::size_t k = 0; k < n; ++k) h[k][k] += 0.3 / static_cast<double>(n);

  std::vector<std::byte> blocks = rounded(best_kernels(), rows);
  const std::vector<float> nearest = numbers_of(blocks);
  KeyRounding(best_kernels(), asked, some_keys(), {}).improve(rows, blocks.data());
  const std::vector<float> got = numbers_of(blocks);
  int others = 0;
  for (std::size_t row = 0; row < 4; ++row)
    for (std::size_t k = 0; k < n; ++k) {
      // With the elements before k off by e, those from k on are best off by -H_ff^-1 H_fb e.
      std::vector<std::vector<double>> free;
      std::vector<double> right;
      for (std::size_t i = k; i < n; ++i) {
        free.emplace_back(h[i].begin() + static_cast<std::ptrdiff_t>(k), h[i].end());
        double sum = 0.0;
        for (std::size_t j = 0; j < k; ++j)
          sum += h[i][j] * static_cast<double>(got[row * n + j] - rows[row * n + j]);
        right.push_back(-sum);
      }
      const double best = static_cast<double>(rows[row * n + k]) + solved(free, right)[0];
      float scale = 0.0f;
      decode_row(DType::f16, blocks.data() + (row * n + k) / 32 * 18, 1, &scale);
      const double code = std::clamp(std::nearbyint(best / static_cast<double>(scale)), -8.0, 7.0);
      others += std::fabs(code * static_cast<double>(scale) - static_cast<double>(got[row * n + k])) > 1e-3;
    }
  EXPECT_LE(others, 1);
  EXPECT_NE(got, nearest);
}

TEST(KeyRounding, ChangesNothing_WhereNoQueryIsKnown) {
  const Kernels& kernels = best_kernels();
  const std::vector<std::byte> before = rounded(kernels, lying_keys());
  ReferenceRows zeros = uneven_queries(1), broken = uneven_queries(1);
  std::fill(zeros.queries.begin(), zeros.queries.end(), 0.0f);
  broken.queries[5] = std::numeric_limits<float>::quiet_NaN();
  for (const ReferenceRows& asked : {ReferenceRows{}, zeros, broken}) {
    std::vector<std::byte> blocks = before;
    KeyRounding(kernels, asked, some_keys(), {}).improve(lying_keys(), blocks.data());
    EXPECT_EQ(blocks, before);
  }
}

TEST(KeyRounding, TakesKeysThatAreNoNumbers) {
  const Kernels& kernels = best_kernels();
  BlockRows block = some_keys();
  std::vector<float> rows = lying_keys();
  rows[3] = std::numeric_limits<float>::quiet_NaN();
  rows[kDim + 3] = std::numeric_limits<float>::infinity();
  std::fill(rows.begin() + 2 * kDim, rows.begin() + 3 * kDim, 0.0f);
  block.keys[4 * kDim] = std::numeric_limits<float>::infinity();
  std::vector<std::byte> blocks = rounded(kernels, rows);
  KeyRounding(kernels, uneven_queries(1), block, {}).improve(rows, blocks.data());
  const std::vector<float> got = numbers_of(blocks);
  for (std::size_t d = 2 * kDim; d < 3 * kDim; ++d) EXPECT_EQ(got[d], 0.0f);
}

}  // namespace
}  // namespace kvtide
