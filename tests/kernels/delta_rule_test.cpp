// delta_rule_test.cpp: one token of one head of a gated delta rule: the formula, and the same bits from every table.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.h"
#include "tests/kernels/same_bits.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::normals;
using testing::same_bits;

constexpr std::int64_t kWidths[] = {1, 5, 15, 16, 17, 33, 64, 85, 128, 150};
constexpr std::int64_t kKeys = 19;

struct Case {
  std::vector<float> query, key, value, before;
  DeltaStep step;

  explicit Case(std::int64_t values)
      : query(normals(kKeys, 1)),
        key(normals(kKeys, 2)),
        value(normals(values, 3)),
        before(normals(kKeys * values, 4)) {
    step = {.query = query.data(),
            .key = key.data(),
            .value = value.data(),
            .decay = 0.87f,
            .rate = 0.31f,
            .keys = kKeys,
            .values = values};
  }
};

TEST(DeltaRule, EqualsTheFormulaInDouble) {
  for (const std::int64_t n : kWidths) {
    const Case c(n);
    std::vector<float> after(c.before.size() + 1, -7.5f), out(static_cast<std::size_t>(n) + 1, -7.5f);
    kElementwiseScalar.delta_rule(c.step, c.before.data(), after.data(), out.data());
    for (std::int64_t j = 0; j < n; ++j) {
      const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(i * n + j); };
      double seen = 0.0, read = 0.0;
      for (std::size_t i = 0; i < kKeys; ++i)
        seen += static_cast<double>(c.key[i]) * c.step.decay *
                static_cast<double>(c.before[at(static_cast<int>(i))]);
      const double delta = c.step.rate * (static_cast<double>(c.value[static_cast<std::size_t>(j)]) - seen);
      for (std::size_t i = 0; i < kKeys; ++i) {
        const std::size_t place = at(static_cast<int>(i));
        const double wanted = static_cast<double>(c.step.decay) * static_cast<double>(c.before[place]) +
                              static_cast<double>(c.key[i]) * delta;
        ASSERT_NEAR(after[place], wanted, 1e-5) << n;
        read += static_cast<double>(c.query[i]) * wanted;
      }
      ASSERT_NEAR(out[static_cast<std::size_t>(j)], read, 1e-4) << n;
    }
    EXPECT_EQ(after.back(), -7.5f);
    EXPECT_EQ(out.back(), -7.5f);
  }
}

TEST(DeltaRule, EveryTableGivesTheSameBits_AlsoInPlace) {
  for (const std::int64_t n : kWidths) {
    const Case c(n);
    std::vector<float> wanted(c.before.size()), wanted_out(static_cast<std::size_t>(n));
    kElementwiseScalar.delta_rule(c.step, c.before.data(), wanted.data(), wanted_out.data());
    for (const Kernels* kernels : available_kernels()) {
      std::vector<float> after = c.before, out(wanted_out.size());
      kernels->elementwise.delta_rule(c.step, after.data(), after.data(), out.data());
      EXPECT_TRUE(same_bits(after, wanted)) << kernels->isa << " " << n;
      EXPECT_TRUE(same_bits(out, wanted_out)) << kernels->isa << " " << n;
    }
  }
}

}  // namespace
}  // namespace kvtide
