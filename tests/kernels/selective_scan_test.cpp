// selective_scan_test.cpp: one token of one head of Mamba-2's recurrence: the formula, and the same bits from every table.
#include <gtest/gtest.h>

#include "tests/kernels/recurrence.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::normals;
constexpr std::int64_t kKeys = testing::kRecurrenceKeys;

struct Case {
  std::vector<float> read, write, input, before;
  ScanStep step;

  explicit Case(std::int64_t values)
      : read(normals(kKeys, 1)),
        write(normals(kKeys, 2)),
        input(normals(values, 3)),
        before(normals(kKeys * values, 4)) {
    step = {.read = read.data(),
            .write = write.data(),
            .input = input.data(),
            .decay = 0.87f,
            .rate = 0.31f,
            .skip = 1.7f,
            .keys = kKeys,
            .values = values};
  }
};

TEST(SelectiveScan, EqualsTheFormulaInDouble) {
  for (const std::int64_t n : testing::kRecurrenceWidths) {
    const Case c(n);
    std::vector<float> after(c.before.size() + 1, -7.5f), out(static_cast<std::size_t>(n) + 1, -7.5f);
    kElementwiseScalar.selective_scan(c.step, c.before.data(), after.data(), out.data());
    for (std::size_t j = 0; j < static_cast<std::size_t>(n); ++j) {
      const double x = static_cast<double>(c.input[j]);
      double wanted_out = static_cast<double>(c.step.skip) * x;
      for (std::size_t i = 0; i < kKeys; ++i) {
        const std::size_t at = i * static_cast<std::size_t>(n) + j;
        const double wanted = static_cast<double>(c.step.decay) * static_cast<double>(c.before[at]) +
                              static_cast<double>(c.write[i]) * static_cast<double>(c.step.rate) * x;
        ASSERT_NEAR(after[at], wanted, 1e-5) << n;
        wanted_out += static_cast<double>(c.read[i]) * wanted;
      }
      ASSERT_NEAR(out[j], wanted_out, 1e-4) << n;
    }
    EXPECT_EQ(after.back(), -7.5f);
    EXPECT_EQ(out.back(), -7.5f);
  }
}

TEST(SelectiveScan, EveryTableGivesTheSameBits_AlsoInPlace) {
  testing::expect_same_bits_in_place<Case>(&ElementwiseRow::selective_scan);
}

}  // namespace
}  // namespace kvtide
