#include "cli/commands/loop_guard.h"

#include <algorithm>

namespace kvtide {

bool LoopGuard::add(std::string_view text) {
  tail_ += text;
  constexpr std::size_t kMost = kCopies * kLongest;
  if (tail_.size() > kMost) tail_.erase(0, tail_.size() - kMost);
  for (std::size_t period = 1; period <= kLongest; ++period) {
    const std::size_t length = std::max(kCopies * period, kLeast);
    if (length > tail_.size()) return false;
    // A text repeats with a period when it equals itself that much later.
    const std::string_view newest = std::string_view(tail_).substr(tail_.size() - length);
    if (newest.substr(period) == newest.substr(0, length - period)) return true;
  }
  return false;
}

}  // namespace kvtide
