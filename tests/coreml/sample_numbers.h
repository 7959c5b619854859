// sample_numbers.h: f16 tensors of numbers, numbers of tensors, and how far two lists of them are apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "coreml/run/convert.h"

namespace kvtide::coreml {

using Numbers = std::vector<float>;

inline Tensor halves_of(const Shape& shape, const Numbers& numbers) {
  Tensor result = zeroed_tensor(DataType::fp16, shape);
  store(best_kernels(), numbers.data(), static_cast<std::int64_t>(numbers.size()), result, 0);
  return result;
}

inline Numbers numbers_in(const Tensor& tensor) {
  Numbers numbers(static_cast<std::size_t>(tensor.elements()));
  load(best_kernels(), tensor, 0, tensor.elements(), numbers.data());
  return numbers;
}

inline float farthest(const Numbers& a, const Numbers& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0.0f;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}

}  // namespace kvtide::coreml
