// far.h: how old rows are seen once the text is longer than what the model was trained for: from how far
// away, and how much they weigh.
#pragma once

#include "kvtide/procedural.h"
#include "kvtide/types.h"

namespace kvtide {

inline constexpr Pos kTrueUpTo = 2048;  // nearer rows keep their distance
inline constexpr Pos kTurnShare = 8;    // blocks of full heads that begin within distance / 8 share one turn

// From how far away rows are seen at most, where the model was trained for so many positions; and the other way round: the
// length that a model was trained for, of whose text no row is seen from further away than `far_from`.
constexpr Pos far_from_of(Pos trained) { return trained / 8 * 7; }
constexpr Pos trained_length(Pos far_from) { return far_from / 7 * 8; }

// The distance at which a row that is `distance` tokens old is seen when `position` tokens were read: never
// more than `most`. log squeezes the far past and keeps its order; clamp puts all of it at `most`.
Pos seen_distance(FarRule rule, Pos distance, Pos position, Pos most);

// `most` for rows of full heads in a text of `position` tokens, where that of others is `far_from`: five eighths of the
// trained length instead of seven, once the text is longer than that length. Far tokens are found less and less well
// toward its end: SmolLM2, trained for 8,192 tokens, with a full cache continues strings that are 4,000 to 5,000 tokens
// back at 2.6 nats a token, and 6,800 to 7,500 back at 8.9.
Pos full_heads_see(Pos far_from, Pos position);

// Nats, at most 0, that are added to the log mass of rows that stand for the tokens from `nearest` to
// `farthest` positions old. Rows that are seen nearer than they are stand closer together than any did in
// training; all of them together would draw more attention than a text of `most` tokens can. So they weigh as
// much as the positions at which they are seen. Rows of full heads keep their weight: these heads find single
// tokens, which would be lost among the others (strings planted 30,000 tokens back cost 3.6 nats per token,
// and 8.5 with half of this mass).
float far_mass(Pos nearest, Pos farthest, Pos position, Pos most);

}  // namespace kvtide
