#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "base/fork_mark.h"
#include "base/futex.h"
#include "base/loop_protocol.h"
#include "base/spin.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

struct Processor {
  template <class T>
  using Atomic = std::atomic<T>;
  using Futex = kvtide::Futex;
  using Spin = kvtide::Spin;
};

int processors(int if_unknown) {
  const auto known = static_cast<int>(std::thread::hardware_concurrency());
  return known != 0 ? known : if_unknown;
}

// More threads than processors take turns: one that spins would keep another from the work that it waits for.
bool may_spin(int threads) { return threads <= processors(threads); }

}  // namespace

struct ThreadPool::Workers {
  LoopProtocol<Processor> protocol;
  std::vector<std::thread> threads;
  ForkMark mark;

  // count: of threads beside the caller.
  explicit Workers(int count) : protocol(may_spin(count + 1)) {
    try {
      threads.reserve(static_cast<std::size_t>(count));
      while (static_cast<int>(threads.size()) < count) threads.emplace_back([this] { protocol.serve(); });
    } catch (const std::exception&) {  // of the system, which has no more threads, or of memory
      join();
      throw Error(ErrorCode::out_of_memory, cat("cannot start ", count, " threads beside the calling one"));
    }
  }
  ~Workers() { join(); }

  void join() {
    protocol.stop();
    for (std::thread& thread : threads) thread.join();
  }
};

int ThreadPool::count(int asked) {
  if (asked != 0) return asked;
  return std::min(processors(1), kMaxThreads);
}

ThreadPool::ThreadPool(int threads, int at_once)
    : threads_(threads), at_once_(std::min(threads, at_once != 0 ? at_once : processors(threads))) {
  if (threads < 1 || threads > kMaxThreads)
    throw Error(ErrorCode::invalid_argument,
                cat("the number of threads must be between 1 and ", kMaxThreads, ", not ", threads));
  if (at_once_ > 1) workers_ = std::make_unique<Workers>(at_once_ - 1);
}

// What the parent's threads hold in a child of fork() can be neither joined nor freed.
ThreadPool::~ThreadPool() {
  if (workers_ && workers_->mark.in_child()) (void)workers_.release();
}

void ThreadPool::run(std::int64_t n, FunctionRef<void(std::int64_t)> body) {
  if (n <= 1 || !workers_) {
    for (std::int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  if (workers_->mark.in_child()) {
    auto own = std::make_unique<Workers>(at_once_ - 1);
    (void)workers_.release();
    workers_ = std::move(own);
  }
  if (const std::exception_ptr failure = workers_->protocol.run(n, body)) std::rethrow_exception(failure);
}

}  // namespace kvtide
