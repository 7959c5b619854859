// shrink.h: making a failing sequence short by deleting steps, as long as it still fails.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace kvtide::testing {

// The shortest failing sequence found within `tries` runs: first large parts are deleted, then smaller ones,
// down to single steps, until no single step can go.
template <class Step>
std::vector<Step> shrink(std::vector<Step> steps, const std::function<bool(const std::vector<Step>&)>& fails,
                         int tries = 2000) {
  for (std::size_t part = std::max<std::size_t>(1, steps.size() / 2);;) {
    bool shorter = false;
    for (std::size_t at = 0; at < steps.size() && tries > 0;) {
      std::vector<Step> without = steps;
      const std::size_t end = std::min(steps.size(), at + part);
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(at),
                    without.begin() + static_cast<std::ptrdiff_t>(end));
      --tries;
      if (fails(without)) {
        steps = std::move(without);
        shorter = true;
      } else {
        at += part;
      }
    }
    if (tries <= 0 || (part == 1 && !shorter)) return steps;
    if (!shorter) part /= 2;
  }
}

}  // namespace kvtide::testing
