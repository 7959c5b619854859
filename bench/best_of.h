// best_of.h: the time of the best of many short rounds, so that other work on the machine counts little.
#pragma once

#include <algorithm>

#include "base/stopwatch.h"

namespace kvtide::bench {

template <class Body>
double best_of(Body body) {
  constexpr int kRounds = 60;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const Stopwatch watch;
    body();
    best = std::min(best, watch.seconds());
  }
  return best;
}

}  // namespace kvtide::bench
