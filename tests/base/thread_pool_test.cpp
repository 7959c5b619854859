#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kvtide/error.h"
#include "tests/base/thread_sanitizer.h"

namespace kvtide {
namespace {

class ThreadPoolSizes : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolSizes, CallsEachIndexExactlyOnce) {
  ThreadPool pool(GetParam(), GetParam());
  ASSERT_EQ(pool.threads(), GetParam());
  for (const std::int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(n));
    pool.run(n, [&](std::int64_t i) { calls.at(static_cast<std::size_t>(i)).fetch_add(1); });
    for (std::size_t i = 0; i < calls.size(); ++i) ASSERT_EQ(calls[i].load(), 1) << i << " of " << n;
  }
}

TEST_P(ThreadPoolSizes, ShowsEveryWriteOfTheBodiesToTheCaller_OverManyShortLoops) {
  ThreadPool pool(GetParam(), GetParam());
  std::vector<std::int64_t> values(37, 0);                  // plain memory: only the pool orders the accesses
  const std::int64_t loops = GetParam() <= 3 ? 3000 : 200;  // sleeping threads make a loop slow
  for (std::int64_t loop = 0; loop < loops; ++loop) {
    pool.run(static_cast<std::int64_t>(values.size()),
             [&](std::int64_t i) { values[static_cast<std::size_t>(i)] += i; });
    ASSERT_EQ(values[36], 36 * (loop + 1));
  }
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<std::int64_t>(i) * loops);
}

TEST_P(ThreadPoolSizes, WakesThreadsThatHaveGoneToSleep) {
  ThreadPool pool(GetParam(), GetParam());
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far longer than the threads spin
    std::atomic<int> calls{0};
    pool.run(100, [&](std::int64_t) { calls.fetch_add(1); });
    EXPECT_EQ(calls.load(), 100);
  }
}

TEST_P(ThreadPoolSizes, PassesOnTheExceptionOfABody_AndStaysUsable) {
  ThreadPool pool(GetParam(), GetParam());
  for (int round = 0; round < 20; ++round) {
    try {
      pool.run(50, [](std::int64_t i) {
        if (i == 17) throw Error(ErrorCode::numeric, "row 17 holds a NaN");
      });
      FAIL() << "no exception came out";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::numeric);
      EXPECT_EQ(error.message(), "row 17 holds a NaN");
    }
    std::atomic<int> calls{0};
    pool.run(50, [&](std::int64_t) { calls.fetch_add(1); });
    ASSERT_EQ(calls.load(), 50) << "after failure " << round;
  }
}

TEST_P(ThreadPoolSizes, StartsNoFurtherIndexLongAfterABodyThrew) {
  ThreadPool pool(GetParam(), GetParam());
  std::atomic<std::int64_t> calls{0};
  EXPECT_THROW(pool.run(1'000'000'000,
                        [&](std::int64_t) {
                          calls.fetch_add(1);
                          throw std::runtime_error("at once");
                        }),
               std::runtime_error);
  EXPECT_LE(calls.load(), GetParam());  // at most the one that each thread had in hand
}

TEST_P(ThreadPoolSizes, ReturnsOnlyWhenNoBodyRunsAnyMore_EvenAfterAnException) {
  ThreadPool pool(GetParam(), GetParam());
  std::atomic<int> running{0};
  EXPECT_THROW(pool.run(GetParam() * 4,
                        [&](std::int64_t i) {
                          running.fetch_add(1);
                          if (i != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
                          running.fetch_sub(1);
                          if (i == 0) throw std::runtime_error("the first index fails early");
                        }),
               std::runtime_error);
  EXPECT_EQ(running.load(), 0);
}

// More threads than any machine that runs the tests has idle cores, too.
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolSizes, testing::Values(1, 2, 3, 8, 33),
                         testing::PrintToStringParamName());

TEST(ThreadPool, SpreadsALoopOverItsThreads) {
  ThreadPool pool(3, 3);
  std::atomic<int> arrived{0};
  // Each body waits for the other two, which can only come from other threads.
  pool.run(3, [&](std::int64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 3);
}

TEST(ThreadPool, RunsNoMoreThreadsThanTheMachineDoesAtOnce) {
  ThreadPool pool(64);
  EXPECT_EQ(pool.threads(), 64);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int round = 0; round < 20; ++round)
    pool.run(200, [&](std::int64_t) {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  EXPECT_LE(threads.size(), std::max(1u, std::thread::hardware_concurrency()));
}

TEST(ThreadPool, OfOneRunsTheLoopInOrderOnTheCaller) {
  ThreadPool pool(1);
  std::vector<std::int64_t> seen;
  std::set<std::thread::id> threads;
  pool.run(5, [&](std::int64_t i) {
    seen.push_back(i);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST(ThreadPool, ANegativeCountIsAnEmptyLoop) {
  ThreadPool pool(2, 2);
  int calls = 0;
  pool.run(-5, [&](std::int64_t) { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST(ThreadPool, TwoPoolsWorkSideBySide) {
  std::atomic<std::int64_t> sum{0};
  auto work = [&] {
    ThreadPool pool(3, 3);
    for (int loop = 0; loop < 200; ++loop) pool.run(10, [&](std::int64_t i) { sum.fetch_add(i); });
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(sum.load(), 2 * 200 * 45);
}

TEST(ThreadPool, RefusesCountsOutsideItsRange_AndSaysWhatIsAllowed) {
  for (const int threads : {0, -1, -1000, ThreadPool::kMaxThreads + 1}) {
    try {
      ThreadPool pool(threads);
      FAIL() << threads << " threads were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.message(),
                "the number of threads must be between 1 and 256, not " + std::to_string(threads));
    }
  }
}

// Runs `work` in a child of fork() and gives its exit status; a child that hangs is ended by a signal after a
// minute.
int status_of_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) << "the child hung for a minute";
  return status;
}

TEST(ThreadPool, WhoseProcessForkedIsDestroyedInTheChildWithoutWaiting) {
  auto pool = std::make_unique<ThreadPool>(4, 4);
  pool->run(100, [](std::int64_t) {});
  EXPECT_EQ(status_of_child([&] {
              pool.reset();
              return true;
            }),
            0);
}

TEST(ThreadPool, WhoseProcessForkedRunsLoopsInTheChildAndInTheParent) {
  if (kThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer ends a child of a process with threads that starts one";
  auto pool = std::make_unique<ThreadPool>(4, 4);
  const auto works = [&] {
    std::atomic<int> calls{0};
    for (int round = 0; round < 3; ++round) pool->run(100, [&](std::int64_t) { calls.fetch_add(1); });
    return calls.load() == 300 && pool->threads() == 4;
  };
  EXPECT_TRUE(works());
  EXPECT_EQ(status_of_child([&] {
              const bool worked = works();
              pool.reset();
              return worked;
            }),
            0);
  EXPECT_TRUE(works());
}

TEST(ThreadPool, IsMadeAndDestroyedManyTimes) {
  for (int i = 0; i < 1000; ++i) {
    std::atomic<int> calls{0};
    ThreadPool pool(4, 4);
    if (i % 3 == 0) pool.run(7, [&](std::int64_t) { calls.fetch_add(1); });
    ASSERT_EQ(calls.load(), i % 3 == 0 ? 7 : 0);
  }
}

TEST(ThreadPool, StartsAsManyThreadsAsItPromises) {
  ThreadPool pool(ThreadPool::kMaxThreads, ThreadPool::kMaxThreads);
  std::atomic<int> calls{0};
  pool.run(1000, [&](std::int64_t) { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 1000);
}

}  // namespace
}  // namespace kvtide
