// pass_timer.h: adds the time from its making to its end to one part of PassTimes; nothing without PassTimes.
#pragma once

#include <optional>

#include "base/stopwatch.h"
#include "kvtide/model.h"

namespace kvtide {

class PassTimer {
 public:
  PassTimer(PassTimes* times, double PassTimes::*part) : times_(times), part_(part) {
    if (times != nullptr) watch_.emplace();
  }
  PassTimer(const PassTimer&) = delete;
  PassTimer& operator=(const PassTimer&) = delete;
  ~PassTimer() {
    if (times_ != nullptr) times_->*part_ += watch_->seconds();
  }

 private:
  PassTimes* times_;
  double PassTimes::*part_;
  std::optional<Stopwatch> watch_;
};

}  // namespace kvtide
