#include "state/procedural/far.h"

#include <algorithm>
#include <cmath>

namespace kvtide {

Pos seen_distance(FarRule rule, Pos distance, Pos position, Pos most) {
  if (position <= most) return distance;
  if (rule == FarRule::clamp) return std::min(distance, most);
  const Pos exact = std::min(kTrueUpTo, std::max<Pos>(1, most / 2));
  if (distance <= exact) return distance;
  const double unit = static_cast<double>(exact), room = static_cast<double>(most - exact);
  const double squeezed = unit + room * std::log1p(static_cast<double>(distance - exact) / unit) /
                                     std::log1p(static_cast<double>(position - exact) / unit);
  return std::min({distance, most, static_cast<Pos>(squeezed)});
}

}  // namespace kvtide
