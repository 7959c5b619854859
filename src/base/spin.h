// spin.h: for how long a thread looks at a value before it sleeps: 20 microseconds by the clock.
//
// That is longer than the gap between two loops of a decode step. A number of looks would not do: the processor's
// instruction for such loops takes from 10 to 140 cycles, by its make.
#pragma once

#include <chrono>

namespace kvtide {

class Spin {
 public:
  // spins: false where another thread may need this processor. Then again() is false at once.
  explicit Spin(bool spins) : spins_(spins) {}

  // Waits for a moment; false when it is time to sleep.
  bool again() {
    if (!spins_) return false;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (++looks_ % kLooksPerClock != 0) return true;
    const auto now = std::chrono::steady_clock::now();
    if (looks_ == kLooksPerClock) start_ = now;  // most waits are shorter, and ask no clock
    return now - start_ < std::chrono::microseconds(20);
  }

 private:
  static constexpr unsigned kLooksPerClock = 8;
  const bool spins_;
  unsigned looks_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace kvtide
