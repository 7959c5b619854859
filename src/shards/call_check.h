// call_check.h: calls that would give wrong results without an error: a state of other weights, a mask that
// hides all that the state holds, rope rows of another position than the slot's.
//
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>

#include "kvtide/shard.h"
#include "shards/manifest.h"

namespace kvtide {

// `lowest`: of every active column of a call at `first`, the first slot that it sees. `ropes`: the folder's
// tables; empty where nothing is rotated. Throws Error(invalid_argument) unless the inputs ask for it:
//   a column sees its own slot only though others are in use, and the layer has no window;
//   rope rows of a column are not the table's for its slot; the message names the position whose rows they are.
void check_call(const ShardInfo& shard, std::span<const RopeFrequencies> ropes, Pos first,
                std::span<const Pos> lowest, const ShardInputs& inputs);

// Of all that the rows of an attention shard depend on: the embedding, the layers below and the shard itself.
std::uint32_t rows_checksum(const ShardManifest& manifest, const ShardEntry& shard);

}  // namespace kvtide
