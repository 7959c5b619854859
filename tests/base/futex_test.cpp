#include "base/futex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/base/time_limit.h"

namespace kvtide {
namespace {

using testing::TimeLimit;

TEST(Futex, DoesNotSleepOnANumberThatHasChanged) {
  Futex number(1);
  for (int i = 0; i < 1'000'000; ++i) number.wait(0);  // two days if each slept
  EXPECT_EQ(number.load(), 1U);
}

TEST(Futex, WakesAllThatSleep) {
  const TimeLimit limit("the threads to wake");
  Futex number(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (number.load() == 0) number.wait(0);
    });
  number.store(1);
  number.notify_all();
  for (std::thread& thread : threads) thread.join();
}

// Nobody notifies here, as if the wake-up had been lost.
TEST(Futex, LooksAgainWhenNoWakeUpComes) {
  const TimeLimit limit("the threads to wake");
  Futex number(0);
  std::thread thread([&] {
    while (number.load() == 0) number.wait(0);
  });
  std::this_thread::sleep_for(Futex::kLongestSleep / 4);
  number.store(1);
  thread.join();
}

}  // namespace
}  // namespace kvtide
