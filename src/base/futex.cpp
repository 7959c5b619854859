#include "base/futex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace kvtide {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4, "the system compares four bytes");

// Gives way a few times first. Where another thread of ours can run instead, or, in a virtual machine, another of its
// processors, the number often changes meanwhile: an eighth of the sleeps were left, and writing was a tenth faster.
//
// Then either notify() sees the sleeper counted here, or the sleeper sees the number that was stored before notify().
void Futex::wait(std::uint32_t seen) const {
  for (int look = 0; look < 4; ++look) {
    if (load(std::memory_order_acquire) != seen) return;
    ::sched_yield();
  }
  constexpr timespec kLongest{0, std::chrono::nanoseconds(kLongestSleep).count()};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (load(std::memory_order_seq_cst) == seen)
    ::syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, &kLongest);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Futex::notify(int most) const {
  if (sleepers_.load(std::memory_order_seq_cst) != 0) ::syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, most);
}

}  // namespace kvtide
