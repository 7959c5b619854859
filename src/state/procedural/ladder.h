// ladder.h: what a number of bytes buys: the options of a procedural memory that a budget leaves open.
//
// A pure function of the memory's shape, the attention that reads it and the options that were given. A budget that
// holds the expected text holds it: exactly, or beyond a window in eight bits. A smaller one gets a step of the ladder
// that fits and as many rows of copying heads as fit. Then more heads keep the whole of an expected text, then the
// window grows, then the rows of every block. Of a text beyond the trained length copying heads keep a part.
#pragma once

#include "state/procedural/choice.h"

namespace kvtide {

// The options with every zero filled in: by the budget, or by the balanced preset. Throws
// Error(invalid_argument) when the budget is too small, naming the smallest that works.
ProceduralOptions filled_in(const KvSpec& shape, const AttentionShape& attention,
                            const ProceduralOptions& options);

}  // namespace kvtide
