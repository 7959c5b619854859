#include "state/procedural/far.h"

#include <algorithm>
#include <cmath>

namespace kvtide {
namespace {

// position > most. Never more than the distance.
double squeezed(Pos distance, Pos position, Pos most) {
  const Pos exact = std::min(kTrueUpTo, std::max<Pos>(1, most / 2));
  if (distance <= exact) return static_cast<double>(distance);
  const double unit = static_cast<double>(exact), room = static_cast<double>(most - exact);
  const double seen = unit + room * std::log1p(static_cast<double>(distance - exact) / unit) /
                                 std::log1p(static_cast<double>(position - exact) / unit);
  return std::min(static_cast<double>(distance), seen);
}

}  // namespace

Pos seen_distance(FarRule rule, Pos distance, Pos position, Pos most) {
  if (position <= most) return distance;
  if (rule == FarRule::clamp) return std::min(distance, most);
  return std::min(most, static_cast<Pos>(squeezed(distance, position, most)));
}

Pos full_heads_see(Pos far_from, Pos position) {
  const bool as_others = far_from == 0 || position <= trained_length(far_from);
  return as_others ? far_from : std::max<Pos>(1, far_from * 5 / 7);
}

float far_mass(Pos nearest, Pos farthest, Pos position, Pos most) {
  if (position <= most) return 0.0f;
  const double seen = squeezed(farthest, position, most) - squeezed(nearest, position, most);
  return static_cast<float>(std::min(0.0, std::log(seen / static_cast<double>(farthest - nearest))));
}

}  // namespace kvtide
