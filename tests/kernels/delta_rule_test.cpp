// delta_rule_test.cpp: one token of one head of a gated delta rule: the formula, and the same bits from every table.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/recurrence.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::normals;
constexpr std::int64_t kKeys = testing::kRecurrenceKeys;

struct DeltaCase {
  std::vector<float> query, key, value, before;
  DeltaStep step;

  explicit DeltaCase(std::int64_t values)
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
  for (const std::int64_t n : testing::kRecurrenceWidths) {
    const DeltaCase c(n);
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
  testing::expect_same_bits_in_place<DeltaCase>(&ElementwiseRow::delta_rule);
}

}  // namespace
}  // namespace kvtide
