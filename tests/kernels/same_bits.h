// same_bits.h: equality of floats as it is meant here: every bit, except that a NaN equals a NaN.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

namespace kvtide::testing {

inline bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Names the first element that differs.
inline ::testing::AssertionResult same_bits(std::span<const float> got, std::span<const float> wanted) {
  if (got.size() != wanted.size())
    return ::testing::AssertionFailure() << got.size() << " values instead of " << wanted.size();
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!same_bits(got[i], wanted[i]))
      return ::testing::AssertionFailure() << "element " << i << " is " << ::testing::PrintToString(got[i])
                                           << " instead of " << ::testing::PrintToString(wanted[i]);
  return ::testing::AssertionSuccess();
}

}  // namespace kvtide::testing
