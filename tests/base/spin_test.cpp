#include "base/spin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace kvtide {
namespace {

using Clock = std::chrono::steady_clock;

// The shortest of many waits: in the others the processor was taken away.
TEST(Spin, EndsAfterTwentyMicroseconds) {
  Clock::duration shortest = std::chrono::seconds(1);
  for (int i = 0; i < 200; ++i) {
    const Clock::time_point start = Clock::now();
    for (Spin spin(true); spin.again();) {
    }
    shortest = std::min(shortest, Clock::now() - start);
  }
  EXPECT_GE(shortest, std::chrono::microseconds(20));
  EXPECT_LT(shortest, std::chrono::microseconds(25));
}

TEST(Spin, DoesNotBeginWhereProcessorsAreScarce) { EXPECT_FALSE(Spin(false).again()); }

}  // namespace
}  // namespace kvtide
