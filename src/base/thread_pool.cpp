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

// A loop is a ticket: its number in the upper bits, the indices not yet handed out in the lower ones.
// Claiming an index is one compare-and-swap, so nobody can claim from a loop that has ended, and the caller
// waits only for indices that were claimed: a worker that the system has put to sleep delays nothing.
constexpr int kCountBits = 40;
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kCountBits) - 1;

}  // namespace

struct ThreadPool::Shared {
  std::vector<std::thread> workers;
  const FunctionRef<void(std::int64_t)>* body = nullptr;  // of the loop whose ticket has indices left
  alignas(64) std::atomic<std::uint64_t> ticket{0};
  alignas(64) std::atomic<std::int64_t> unfinished{0};   // indices of this loop whose body has not returned
  alignas(64) std::atomic<std::uint32_t> generation{0};  // what sleeping workers watch
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  std::mutex failure_mutex;
  std::exception_ptr failure;

  // Runs indices until none is left to claim.
  void work() {
    std::uint64_t seen = ticket.load(std::memory_order_acquire);
    while ((seen & kCountMask) != 0) {
      if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      run_index(static_cast<std::int64_t>((seen & kCountMask) - 1));
      seen = ticket.load(std::memory_order_acquire);
    }
  }

  void run_index(std::int64_t index) {
    if (!failed.load(std::memory_order_relaxed)) {
      try {
        (*body)(index);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        failed.store(true, std::memory_order_relaxed);
        give_up_the_rest();
      }
    }
    unfinished.fetch_sub(1, std::memory_order_acq_rel);
  }

  // Takes all indices that nobody has claimed, without running them: a loop may have far more than are worth
  // claiming one by one. The caller's own index is unfinished, so the ticket is still that of this loop.
  void give_up_the_rest() {
    std::uint64_t seen = ticket.load(std::memory_order_acquire);
    while (!ticket.compare_exchange_weak(seen, seen & ~kCountMask, std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
    }
    unfinished.fetch_sub(static_cast<std::int64_t>(seen & kCountMask), std::memory_order_acq_rel);
  }

  void serve() {
    while (!stop.load(std::memory_order_relaxed)) {
      const std::uint32_t before = generation.load(std::memory_order_acquire);
      work();
      bool changed = false;
      for (int spin = 0; spin < kSpins && !changed; ++spin) {
        changed = generation.load(std::memory_order_acquire) != before;
        relax();
      }
      if (!changed) generation.wait(before, std::memory_order_acquire);
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
  s.unfinished.store(n, std::memory_order_relaxed);
  const std::uint64_t loop = (s.ticket.load(std::memory_order_relaxed) >> kCountBits) + 1;
  s.ticket.store((loop << kCountBits) | static_cast<std::uint64_t>(n), std::memory_order_release);
  s.generation.fetch_add(1, std::memory_order_release);
  s.generation.notify_all();
  s.work();
  for (int spin = 0; s.unfinished.load(std::memory_order_acquire) != 0; ++spin) {
    relax();
    if (spin > kSpins) std::this_thread::yield();  // a worker was put to sleep in the middle of its index
  }
  if (s.failed.load(std::memory_order_relaxed)) {
    s.failed.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(s.failure, nullptr));
  }
}

}  // namespace kvtide
