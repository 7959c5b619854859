// Rows of the past as they are stored, and back.
#include "state/procedural/stored_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/codec.h"
#include "kernels/hadamard.h"
#include "tests/state/procedural/procedural_state.h"

namespace kvtide {
namespace {

constexpr std::int64_t kDim = 64;

// The root mean square of what storing changes.
double error_of(DType type, const std::vector<float>& row, const std::vector<float>& mean) {
  const Kernels& kernels = best_kernels();
  std::vector<float> changed = row, back(row.size());
  std::vector<std::byte> stored(static_cast<std::size_t>(dtype_bytes(type, kDim)));
  store_row(kernels, type, changed, mean, stored.data());
  read_row(kernels, type, stored.data(), mean, back);
  double sum = 0.0;
  for (std::size_t d = 0; d < row.size(); ++d) sum += std::pow(static_cast<double>(back[d] - row[d]), 2);
  return std::sqrt(sum / static_cast<double>(kDim));
}

TEST(StoredRow, ComesBackAsExactlyAsItsTypeHolds) {
  const std::vector<float> row = testing::fed_numbers(3, 0, 0, 0, kDim);
  EXPECT_EQ(error_of(DType::f32, row, {}), 0.0);
  EXPECT_LT(error_of(DType::f16, row, {}), 1e-3);
  EXPECT_LT(error_of(DType::q8_0, row, {}), 1e-2);
  const double four = error_of(DType::q4_0, row, {});
  EXPECT_GT(four, 1e-2);
  EXPECT_LT(four, 0.2);
}

TEST(StoredRow, InFourBitsStandsASingleLargeElement) {
  std::vector<float> row = testing::fed_numbers(3, 0, 0, 0, kDim);
  row[17] = 40.0f;
  std::vector<float> as_it_lies(row.size());
  std::vector<std::byte> stored(static_cast<std::size_t>(dtype_bytes(DType::q4_0, kDim)));
  encode_row(DType::q4_0, row.data(), kDim, stored.data());
  decode_row(DType::q4_0, stored.data(), kDim, as_it_lies.data());
  const auto zeros = std::count(as_it_lies.begin(), as_it_lies.begin() + 32, 0.0f);
  EXPECT_GT(zeros, 25) << "without the transform its block has nothing but it";
  EXPECT_LT(error_of(DType::q4_0, row, {}), 0.6);
}

TEST(StoredRow, InFourBitsIsMoreExactWithoutWhatKeysHaveInCommon) {
  std::vector<float> common = testing::fed_numbers(9, 0, 0, 0, kDim);
  for (float& x : common) x *= 8.0f;
  std::vector<float> row = testing::fed_numbers(3, 0, 0, 0, kDim);
  for (std::size_t d = 0; d < row.size(); ++d) row[d] += common[d];
  hadamard(common.data(), kDim);  // as the mean of a head lies
  EXPECT_LT(3.0 * error_of(DType::q4_0, row, common), error_of(DType::q4_0, row, {}));
}

}  // namespace
}  // namespace kvtide
