// selective_scan_test.cpp: one token of one head of Mamba-2's recurrence: the formula, and the same bits from every table.
#include <gtest/gtest.h>

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
  for (const std::int64_t n : kWidths) {
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
  for (const std::int64_t n : kWidths) {
    const Case c(n);
    std::vector<float> wanted(c.before.size()), wanted_out(static_cast<std::size_t>(n));
    kElementwiseScalar.selective_scan(c.step, c.before.data(), wanted.data(), wanted_out.data());
    for (const Kernels* kernels : available_kernels()) {
      std::vector<float> after = c.before, out(wanted_out.size());
      kernels->elementwise.selective_scan(c.step, after.data(), after.data(), out.data());
      EXPECT_TRUE(same_bits(after, wanted)) << kernels->isa << " " << n;
      EXPECT_TRUE(same_bits(out, wanted_out)) << kernels->isa << " " << n;
    }
  }
}

}  // namespace
}  // namespace kvtide
