// futex.h: a number that threads sleep on until it changes.
//
// Like std::atomic<std::uint32_t> with wait() and notify, but a wake-up cannot be lost for good. libstdc++ 12 counts
// the threads that sleep, and looks at the count before it wakes one. Behind a store that is only a release, the
// processor may look first, so that the thread that is about to sleep sees neither the new number nor a wake-up.
// store() is therefore sequentially consistent. And whoever sleeps looks again after kLongestSleep: a wake-up that is
// lost below us, in the system or in a virtual machine, then costs a moment instead of the process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace kvtide {

class Futex {
 public:
  static constexpr std::chrono::milliseconds kLongestSleep{200};

  explicit Futex(std::uint32_t value) : value_(value) {}

  std::uint32_t load(std::memory_order order = std::memory_order_seq_cst) const { return value_.load(order); }
  void store(std::uint32_t value) { value_.store(value, std::memory_order_seq_cst); }

  // Sleeps while the number is `seen`: until a notify_ behind a store, at most kLongestSleep, or shorter for no reason.
  void wait(std::uint32_t seen) const;
  void notify_one() const { notify(1); }
  void notify_all() const { notify(INT32_MAX); }

 private:
  void notify(int most) const;

  std::atomic<std::uint32_t> value_;
  mutable std::atomic<std::uint32_t> sleepers_{0};  // at least as many as sleep
};

}  // namespace kvtide
