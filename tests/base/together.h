// together.h: bodies of a test that run at the same time, each on a thread of its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/time_limit.h"

namespace kvtide::testing {

// Starts all bodies at one moment and waits for them; what a body throws fails the test.
inline void run_together(const std::string& awaited, const std::vector<std::function<void()>>& bodies) {
  const TimeLimit limit(awaited);
  std::atomic<std::size_t> ready{0};
  std::vector<std::thread> threads;
  for (const auto& body : bodies)
    threads.emplace_back([&] {
      ready.fetch_add(1);
      while (ready.load() < bodies.size()) std::this_thread::yield();
      try {
        body();
      } catch (const std::exception& error) {
        ADD_FAILURE() << awaited << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kvtide::testing
