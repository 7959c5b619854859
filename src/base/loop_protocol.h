// loop_protocol.h: how the threads of a pool share one loop after another, and how they stop.
//
// There is one caller, which alone runs loops and stops, and any number of workers, which serve. The threads
// themselves are not in here, and everything that two of them touch is of a type that Platform names. So
// tests/base/loop_protocol_test.cpp runs this very code in every order of its steps.
//
// Invariants
//   1. An index of [0, n) is claimed by exactly one thread: `unclaimed` gives them out, high ones first.
//   2. A thread that has claimed an index keeps its loop from ending. What the caller writes before it gives
//      out indices (`body`, `loop`) is therefore of the same loop until the thread has finished the index.
//   3. A worker reads `started` once, decides by that value whether to stop, and sleeps only while `started`
//      still has it. A loop or a stop that comes in between changes the value, so no wake-up is lost.
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include "base/function_ref.h"

namespace kvtide {

// Platform has Atomic<T>, with the operations of std::atomic; Futex, as in base/futex.h; and Spin, as in base/spin.h.
template <class Platform>
class LoopProtocol {
 public:
  using Body = FunctionRef<void(std::int64_t)>;

  // spins: does a thread look for a while whether a value has changed before it sleeps?
  explicit LoopProtocol(bool spins) : spins_(spins) {}

  // A worker: takes part in loops until stop().
  void serve() {
    for (;;) {
      const std::uint32_t before = started_.load(std::memory_order_acquire);
      if ((before & kStop) != 0) return;
      take_part();
      wait_while(started_, before);
    }
  }

  // The caller: calls body(i) once for every i of [0, n), n > 0, on all threads, and returns when no body
  // runs any more. A body that throws ends the loop early: indices that nobody has claimed are given up.
  // Returns the exception of the first such body, or nullptr.
  std::exception_ptr run(std::int64_t n, const Body& body) {
    body_ = &body;
    failed_.store(false, std::memory_order_relaxed);
    unfinished_.store(n, std::memory_order_relaxed);
    loop_ += kLoop;
    unclaimed_.store(n, std::memory_order_release);  // from here on workers that are awake take part
    started_.store(loop_);
    started_.notify_all();
    take_part();
    for (std::uint32_t seen = ended_.load(std::memory_order_acquire); seen != loop_;
         seen = ended_.load(std::memory_order_acquire))
      wait_while(ended_, seen);
    return std::exchange(failure_, nullptr);
  }

  // The caller: serve() returns in every worker, also in those that begin to serve later.
  void stop() {
    started_.store(loop_ | kStop);
    started_.notify_all();
  }

 private:
  template <class T>
  using Atomic = typename Platform::template Atomic<T>;
  using Futex = typename Platform::Futex;
  static constexpr std::uint32_t kStop = 1, kLoop = 2;  // bits of started_: the stop, and above it the loops

  void take_part() {
    std::int64_t seen = unclaimed_.load(std::memory_order_acquire);
    while (seen != 0) {
      if (!unclaimed_.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                            std::memory_order_acquire))
        continue;
      finish(1 + call_body(seen - 1));
      seen = unclaimed_.load(std::memory_order_acquire);
    }
  }

  // Returns how many other indices end with this one: those that are given up because the body threw.
  std::int64_t call_body(std::int64_t index) {
    std::exception_ptr thrown;
    try {
      (*body_)(index);
    } catch (...) {
      thrown = std::current_exception();
    }
    if (!thrown) return 0;
    if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::move(thrown);
    return unclaimed_.exchange(0, std::memory_order_acq_rel);
  }

  // The caller may be in its next loop by the time the last thread notifies: it only looks once more.
  void finish(std::int64_t indices) {
    const std::uint32_t loop = loop_;  // read before the loop can end
    if (unfinished_.fetch_sub(indices, std::memory_order_acq_rel) != indices) return;
    ended_.store(loop);
    ended_.notify_one();
  }

  // Returns when `value` is no longer `seen`, or sooner.
  void wait_while(const Futex& value, std::uint32_t seen) const {
    for (typename Platform::Spin spin(spins_); spin.again();)
      if (value.load(std::memory_order_acquire) != seen) return;
    value.wait(seen);
  }

  const bool spins_;
  const Body* body_ = nullptr;
  std::uint32_t loop_ = 0;      // the number of the loop, in steps of kLoop
  std::exception_ptr failure_;  // written by the thread that set failed_, read when the loop has ended
  alignas(64) Atomic<std::int64_t> unclaimed_{0};
  alignas(64) Atomic<std::int64_t> unfinished_{0};  // whose body has not returned and which are not given up
  alignas(64) Futex started_{0};                    // what sleeping workers watch
  Atomic<bool> failed_{false};
  alignas(64) Futex ended_{0};  // the loop that ended last: what the caller watches
};

}  // namespace kvtide
