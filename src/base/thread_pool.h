// thread_pool.h: a fixed set of threads that run one loop at a time.
//
// run(n, body) calls body(i) exactly once for every i in [0, n), on any thread, high indices first, and returns when
// all are done. Results must therefore not depend on which thread ran what: bodies write to places of their
// own. When a body throws, no further index is started, and run() throws the first exception once every
// thread has stopped; the pool stays usable. Ownership: one pool belongs to one caller at a time; run() is
// not reentrant and not thread safe. Waiting threads spin for a few microseconds (a decode step is hundreds
// of short loops) and then sleep.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace kvtide {

class ThreadPool {
 public:
  static constexpr int kMaxThreads = 256;

  // `threads` counts the calling thread; 1 starts none. Throws Error(invalid_argument) outside [1,
  // kMaxThreads].
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  void run(std::int64_t n, FunctionRef<void(std::int64_t)> body);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace kvtide
