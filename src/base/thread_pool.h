// thread_pool.h: a fixed set of threads that run one loop at a time.
//
// run(n, body) calls body(i) exactly once for every i in [0, n), on any thread, high indices first, and
// returns when all are done. Results must therefore not depend on which thread ran what: bodies write to
// places of their own. When a body throws, indices that no thread has begun are given up, and run() throws
// the first exception once every thread has stopped; the pool stays usable.
// No more threads run than the machine runs at once: they would only take turns. Results do not depend on it.
// Ownership: one pool belongs to one caller at a time; run() is not reentrant and not thread safe. Waiting
// threads spin for a few microseconds (a decode step is hundreds of short loops) and then sleep; those of a pool
// that runs more than the machine does at once sleep immediately.
//
// A process that forks gives its child a pool without threads: the child's first run() starts threads of its
// own, and destroying the pool there waits for none of the parent's.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace kvtide {

class ThreadPool {
 public:
  static constexpr int kMaxThreads = 256;

  // `asked`, or as many threads as the machine runs at once (at most kMaxThreads) when that is 0.
  static int count(int asked);

  // `threads` counts the calling thread; 1 starts none. At most `at_once` of them run; 0: as many as the machine
  // runs at once. Throws Error(invalid_argument) outside [1, kMaxThreads], Error(out_of_memory) when the system
  // gives no more threads.
  explicit ThreadPool(int threads, int at_once = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  void run(std::int64_t n, FunctionRef<void(std::int64_t)> body);

 private:
  struct Workers;
  int threads_;
  int at_once_;
  std::unique_ptr<Workers> workers_;  // nullptr: the caller alone
};

}  // namespace kvtide
