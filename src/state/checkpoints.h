// checkpoints.h: which positions a state can go back to where windows have moved on or recurrent tensors have been
// replaced, and what it keeps for that. Pure functions of the spec and of positions.
//
// A checkpoint copies nothing: the rows that a window would let go of stay where they are, and so do the values of the
// recurrent tensors. Of procedural memories there are none: their past is compressed and cannot be had back.
#pragma once

#include <cstdint>
#include <vector>

#include "kvtide/types.h"
#include "state/spec/spec.h"

namespace kvtide {

// Whether there is a position that a state cannot go back to otherwise.
bool needs_checkpoints(const KvSpec& spec);

// The rows that a layer keeps for a checkpoint at position `at`, sinks apart: what it held then. Empty when it keeps
// everything anyway.
PosRange kept_for(const KvSpec& spec, const LayerSpec& layer, Pos at);

// The most that checkpoints at these positions (ascending) take, once everything else has moved on.
std::int64_t checkpoint_bytes(const KvSpec& spec, const std::vector<Pos>& positions);

// Checkpoints (ascending) that fit the budget at position `now`. Those go first whose absence costs least: the tokens
// that going back would read again without one, for every token that it lies back. So the newest stay as they were made
// and older ones thin out geometrically. Those that fit beside what is left then stay, the newest first.
std::vector<Pos> within_budget(const KvSpec& spec, std::vector<Pos> positions, Pos now);

// Tokens from `position` to the next checkpoint that is made by itself; 0: there is none.
std::int64_t until_checkpoint(const KvSpec& spec, Pos position);

}  // namespace kvtide
