// The protocol of the thread pool in every order of its steps: no lost wake-up, no index lost or run twice.
//
// KVTIDE_ORDERS is how many orders a case tries at most; `make stress` sets it higher.
#include "base/loop_protocol.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/base/interleavings.h"
#include "tests/base/thread_sanitizer.h"

namespace kvtide {
namespace {

struct Steps {
  template <class T>
  using Atomic = StepAtomic<T>;
  using Futex = StepAtomic<std::uint32_t>;
  // Once.
  struct Spin {
    explicit Spin(bool spins) : left(spins) {}
    bool again() { return std::exchange(left, false); }
    bool left;
  };
};

// As ThreadPool is to the processor's threads, of which there are three: with a fourth, nobody looks twice before sleeping.
class Pool {
 public:
  Pool(Interleavings& order, int threads) : order_(order), protocol_(threads < 4) {
    for (int i = 1; i < threads; ++i) workers_.push_back(order.spawn([this] { protocol_.serve(); }));
  }
  ~Pool() {
    protocol_.stop();
    for (const int worker : workers_) order_.join(worker);
  }
  std::exception_ptr run(std::int64_t n, const FunctionRef<void(std::int64_t)>& body) {
    return protocol_.run(n, body);
  }

 private:
  Interleavings& order_;
  LoopProtocol<Steps> protocol_;
  std::vector<int> workers_;
};

struct Loop {
  std::int64_t n;
  std::int64_t throws = -1;  // the index whose body throws
};

// One loop of the pool, with what must hold when it returns.
void run_and_check(Interleavings& order, Pool& pool, const Loop& loop) {
  std::vector<int> begun(static_cast<std::size_t>(loop.n), 0), ended = begun;
  bool over = false;
  const std::exception_ptr failure = pool.run(loop.n, [&](std::int64_t i) {
    order.expect(!over, "a body began after its loop had returned");
    ++begun[static_cast<std::size_t>(i)];
    order.step("body");
    order.expect(!over, "a loop returned while a body ran");
    ++ended[static_cast<std::size_t>(i)];
    if (i == loop.throws) throw std::runtime_error("as planned");
  });
  over = true;
  for (std::size_t i = 0; i < begun.size(); ++i) {
    order.expect(begun[i] <= 1, "an index ran twice");
    order.expect(ended[i] == begun[i], "a body was left half done");
    order.expect(loop.throws >= 0 || ended[i] == 1, "an index was lost");
  }
  order.expect((failure != nullptr) == (loop.throws >= 0), "the exception of a body was lost or made up");
}

Interleavings::Program loops(int threads, std::vector<Loop> loops) {
  return [=](Interleavings& order) {
    Pool pool(order, threads);
    for (const Loop& loop : loops) run_and_check(order, pool, loop);
  };
}

std::int64_t most_orders() {
  const char* wanted = std::getenv("KVTIDE_ORDERS");
  return wanted == nullptr ? 2'000 : std::strtoll(wanted, nullptr, 10);
}

// The orders with few preemptions first, all if they are not too many, then random ones.
void check(const Interleavings::Program& program) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not follow one thread from stack to stack";
  Interleavings order;
  for (const int preemptions : {0, 1, 2, 3}) {
    const auto outcome = order.explore(program, preemptions, most_orders());
    ASSERT_EQ(outcome.failure, "") << "after " << outcome.orders << " orders of " << preemptions
                                   << " preemptions";
    if (!outcome.complete) break;
  }
  const auto outcome = order.sample(program, 1, most_orders());
  ASSERT_EQ(outcome.failure, "") << "after " << outcome.orders << " random orders";
}

class Threads : public testing::TestWithParam<int> {};

TEST_P(Threads, EndWhenThePoolIsDestroyedAtOnce) { check(loops(GetParam(), {})); }

TEST_P(Threads, RunEachIndexOfALoopOnce) {
  for (const std::int64_t n : {1, 2, 3}) check(loops(GetParam(), {{n}}));
}

TEST_P(Threads, RunOneLoopAfterAnother) {
  check(loops(GetParam(), {{2}, {2}}));
  check(loops(GetParam(), {{1}, {3}, {2}}));
}

TEST_P(Threads, PassOnAnException_AndGoOnWithTheNextLoop) {
  for (const std::int64_t index : {0, 1, 2}) check(loops(GetParam(), {{3, index}, {2}}));
  check(loops(GetParam(), {{2, 1}, {2, 0}}));
}

TEST_P(Threads, RunAPoolThatABodyMakes) {
  check([threads = GetParam()](Interleavings& order) {
    Pool outer(order, 2);
    int inner_indices = 0;
    outer.run(2, [&](std::int64_t i) {
      if (i == 1) return;
      Pool inner(order, threads);
      inner.run(2, [&](std::int64_t) {
        order.step("inner body");
        ++inner_indices;
      });
    });
    order.expect(inner_indices == 2, "an index of the inner loop was lost");
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Threads, testing::Values(2, 3, 4), testing::PrintToStringParamName());

TEST(LoopProtocol, OfTwoThreadsStartsAndStopsInEveryOrderThereIs) {
  if (kThreadSanitizer) GTEST_SKIP() << "see check()";
  Interleavings order;
  const auto outcome = order.explore(loops(2, {}), std::nullopt, 1'000'000);
  EXPECT_EQ(outcome.failure, "");
  EXPECT_TRUE(outcome.complete) << outcome.orders;
}

// A worker that reads the stop before the value on which it sleeps: the stop may come in between.
TEST(Interleavings, FindALostWakeUp) {
  if (kThreadSanitizer) GTEST_SKIP() << "see check()";
  Interleavings order;
  const auto outcome = order.explore(
      [](Interleavings& threads) {
        StepAtomic<bool> stop{false};
        StepAtomic<std::uint32_t> generation{0};
        const int worker = threads.spawn([&] {
          while (!stop.load(std::memory_order_relaxed))
            generation.wait(generation.load(std::memory_order_acquire), std::memory_order_acquire);
        });
        stop.store(true, std::memory_order_relaxed);
        generation.store(1, std::memory_order_release);
        generation.notify_all();
        threads.join(worker);
      },
      2, 1000);
  EXPECT_NE(outcome.failure.find("nobody can go on"), std::string::npos) << outcome.failure;
}

TEST(Interleavings, FindAnUpdateThatIsLost) {
  if (kThreadSanitizer) GTEST_SKIP() << "see check()";
  Interleavings order;
  const auto outcome = order.explore(
      [](Interleavings& threads) {
        StepAtomic<int> count{0};
        const auto add = [&] {
          count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        };
        const int other = threads.spawn(add);
        add();
        threads.join(other);
        threads.expect(count.load(std::memory_order_relaxed) == 2, "an update was lost");
      },
      1, 1000);
  EXPECT_NE(outcome.failure.find("an update was lost"), std::string::npos) << outcome.failure;
}

}  // namespace
}  // namespace kvtide
