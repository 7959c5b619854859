// recurrence.h: one token of one head of a recurrence, tried on many widths and on every kernel table.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/same_bits.h"

namespace kvtide::testing {

// Values per key, on both sides of a vector's length; and keys.
constexpr std::int64_t kRecurrenceWidths[] = {1, 5, 15, 16, 17, 33, 64, 85, 128, 150};
constexpr std::int64_t kRecurrenceKeys = 19;

// Case(width) has a `step` and the state `before`; function: the member of ElementwiseRow that takes them.
template <class Case, class Function>
void expect_same_bits_in_place(Function function) {
  for (const std::int64_t width : kRecurrenceWidths) {
    const Case c(width);
    std::vector<float> wanted(c.before.size()), wanted_out(static_cast<std::size_t>(width));
    (kElementwiseScalar.*function)(c.step, c.before.data(), wanted.data(), wanted_out.data());
    for (const Kernels* kernels : available_kernels()) {
      std::vector<float> after = c.before, out(wanted_out.size());
      (kernels->elementwise.*function)(c.step, after.data(), after.data(), out.data());
      EXPECT_TRUE(same_bits(after, wanted)) << kernels->isa << " " << width;
      EXPECT_TRUE(same_bits(out, wanted_out)) << kernels->isa << " " << width;
    }
  }
}

}  // namespace kvtide::testing
