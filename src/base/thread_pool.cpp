#include "base/thread_pool.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// About 20 microseconds on current machines: longer than the gap between two loops of a decode step.
constexpr int kSpins = 2000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns when `value` no longer equals `old`.
std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::Shared {
  std::vector<std::thread> workers;
  const FunctionRef<void(std::int64_t)>* body = nullptr;
  std::int64_t n = 0;
  alignas(64) std::atomic<std::uint32_t> generation{0};  // bumped once per loop
  alignas(64) std::atomic<std::int64_t> next{0};         // next index to hand out
  alignas(64) std::atomic<std::uint32_t> busy{0};        // workers that have not finished this loop
  std::atomic<bool> stop{false};
  std::mutex failure_mutex;
  std::exception_ptr failure;

  void work() {
    try {
      for (;;) {
        const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
        if (i >= n) return;
        (*body)(i);
      }
    } catch (...) {
      next.store(n, std::memory_order_relaxed);
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }

  void serve() {
    std::uint32_t seen = 0;
    for (;;) {
      seen = wait_for_change(generation, seen);
      if (stop.load(std::memory_order_relaxed)) return;
      work();
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) busy.notify_one();
    }
  }

  void join_all() {
    stop.store(true, std::memory_order_relaxed);
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
    for (auto& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int threads) : shared_(std::make_unique<Shared>()) {
  if (threads < 1 || threads > kMaxThreads)
    throw Error(ErrorCode::invalid_argument,
                cat("the number of threads must be between 1 and ", kMaxThreads, ", not ", threads));
  try {
    for (int i = 1; i < threads; ++i) shared_->workers.emplace_back([this] { shared_->serve(); });
  } catch (const std::system_error&) {
    shared_->join_all();
    throw Error(ErrorCode::out_of_memory, cat("cannot start ", threads, " threads"));
  }
}

ThreadPool::~ThreadPool() { shared_->join_all(); }

int ThreadPool::threads() const { return static_cast<int>(shared_->workers.size()) + 1; }

void ThreadPool::run(std::int64_t n, FunctionRef<void(std::int64_t)> body) {
  Shared& s = *shared_;
  if (n <= 1 || s.workers.empty()) {
    for (std::int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  s.body = &body;
  s.n = n;
  s.next.store(0, std::memory_order_relaxed);
  s.busy.store(static_cast<std::uint32_t>(s.workers.size()), std::memory_order_relaxed);
  s.generation.fetch_add(1, std::memory_order_release);
  s.generation.notify_all();
  s.work();
  for (std::uint32_t left = s.busy.load(std::memory_order_acquire); left != 0;)
    left = wait_for_change(s.busy, left);
  if (s.failure) std::rethrow_exception(std::exchange(s.failure, nullptr));
}

}  // namespace kvtide
