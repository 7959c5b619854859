// far.h: how old rows are seen once the text is longer than what the model was trained for: from how far
// away, and how much they weigh.
#pragma once

#include "kvtide/procedural.h"
#include "kvtide/types.h"

namespace kvtide {

inline constexpr Pos kTrueUpTo = 2048;  // nearer rows keep their distance
inline constexpr Pos kTurnShare = 8;    // of a distance: nearer neighbours may be seen with one turn

// The distance at which a row that is `distance` tokens old is seen when `position` tokens were read: never
// more than `most`. log squeezes the far past and keeps its order; clamp puts all of it at `most`.
Pos seen_distance(FarRule rule, Pos distance, Pos position, Pos most);

// Nats, at most 0, that are added to the log mass of rows that stand for all tokens from `nearest` to
// `farthest` positions old, `farthest` the larger: squeezed rows stand closer together than any did in
// training, and all of them together would draw more attention than a text of `most` tokens can. So they
// weigh as much as the positions that they are seen at. Rows of full heads do not: those find single tokens,
// which would drown (strings planted 30,000 tokens back, nats per token: 3.6, and 8.5 with half of this).
float far_mass(Pos nearest, Pos farthest, Pos position, Pos most);

}  // namespace kvtide
