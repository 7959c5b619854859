// far.h: from how far away old rows are seen once the text is longer than what the model was trained for.
#pragma once

#include "kvtide/procedural.h"
#include "kvtide/types.h"

namespace kvtide {

inline constexpr Pos kTrueUpTo = 2048;  // nearer rows keep their distance

// The distance at which a row that is `distance` tokens old is seen when `position` tokens were read: never
// more than `most`. log squeezes the far past and keeps its order; clamp puts all of it at `most`.
Pos seen_distance(FarRule rule, Pos distance, Pos position, Pos most);

}  // namespace kvtide
