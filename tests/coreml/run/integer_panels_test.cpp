// Integers with scales as panels: the numbers of the chain that they were, bit for bit.
#include "coreml/run/integer_panels.h"

#include <gtest/gtest.h>

#include "coreml/run/weight.h"
#include "coreml/write/values.h"

namespace kvtide::coreml {
namespace {

Tensor tensor_of(const Value& value) {
  Tensor result = zeroed_tensor(value.type.dtype, value.type.shape);
  std::copy(value.bytes.begin(), value.bytes.end(), result.data.get());
  return result;
}

// 20 outputs of 64 inputs.
CompressedPtr matrix(DataType type, Shape scales, bool half_scales = true) {
  const int most = type == DataType::int8 ? 127 : 7;
  std::vector<int> integers;
  for (int i = 0; i < 20 * 64; ++i) integers.push_back((i * 37 + i / 64) % (2 * most + 2) - most - 1);
  const Value data = packed(type, {20, 64}, integers);
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < scales[0] * scales[1]; ++i)
    numbers.push_back(0.01f + 0.003f * static_cast<float>(i % 17));
  const Tensor scale = tensor_of(half_scales ? halves(scales, numbers) : floats(scales, numbers));
  return scaled_blocks(stored_numbers(data, scale.dtype, {20, 64}), scale, nullptr, best_kernels());
}

TEST(IntegerPanels, HoldTheNumbersThatTheyStandFor) {
  Runtime run(2, best_kernels());
  const CompressedPtr matrices[] = {matrix(DataType::int8, {20, 1}), matrix(DataType::int8, {1, 1}),
                                    matrix(DataType::int4, {20, 2}), matrix(DataType::int4, {20, 4}, false),
                                    matrix(DataType::int8, {5, 2}, false)};
  for (const CompressedPtr& each : matrices) {
    const auto panels = IntegerPanels::of(run, *each, 20, 64);
    ASSERT_NE(panels, nullptr);
    std::vector<float> wanted(20 * 64), got(64 * 16);
    each->decode(run.kernels, 0, 20 * 64, wanted.data());
    for (const auto& [first, last] : {std::pair(0, 64), std::pair(2, 50), std::pair(32, 34)})
      for (int panel = 0; panel < 2; ++panel) {
        panels->decode(run.kernels, panel, first, last, got.data());
        for (int k = first; k < last; ++k)
          for (int r = 0; r < 16; ++r) {
            const int output = panel * 16 + r;
            ASSERT_EQ(got[static_cast<std::size_t>((k - first) * 16 + r)],
                      output < 20 ? wanted[static_cast<std::size_t>(output * 64 + k)] : 0.0f)
                << output << ", " << k;
          }
      }
    EXPECT_LE(panels->bytes(), 2 * 16 * 64 + 2 * 16 * 4 * 4 + 64 + 4096);
  }
}

TEST(IntegerPanels, AreNotMadeOfOtherElements) {
  Runtime run(1, best_kernels());
  const Value bytes = packed(DataType::uint8, {20, 64}, std::vector<int>(20 * 64, 200));
  const Tensor scale = tensor_of(halves({20, 1}, std::vector<float>(20, 0.5f)));
  const auto plain = stored_numbers(bytes, DataType::fp16, {20, 64});
  EXPECT_EQ(IntegerPanels::of(run, *scaled_blocks(plain, scale, nullptr, run.kernels), 20, 64), nullptr);
  const Value integers = packed(DataType::int8, {20, 64}, std::vector<int>(20 * 64, 3));
  EXPECT_EQ(IntegerPanels::of(run, *stored_numbers(integers, DataType::fp16, {20, 64}), 20, 64), nullptr);
}

}  // namespace
}  // namespace kvtide::coreml
