// bytes.h: what rows of keys and values take: every question of bytes is answered from here. What a procedural
// memory takes on top, page by page, is in procedural/budget.h.
#pragma once

#include <cstdint>

#include "state/spec/spec.h"

namespace kvtide {

// Of one position in all KV heads of a layer.
std::int64_t row_bytes(const LayerSpec& layer, DType key_type, DType value_type);
// The same, as the layer keeps it: once where the value lies in the key.
std::int64_t row_bytes(const KvSpec& spec, const LayerSpec& layer);

// Numbers and bytes of one value of a tensor without a sequence axis, and bytes of all of them at one position.
std::int64_t recurrent_elements(const RecurrentSpec& spec);
std::int64_t recurrent_bytes(const RecurrentSpec& spec);
std::int64_t carried_bytes(const KvSpec& spec);

// Of what a memory that summarises nothing keeps of `tokens` tokens: windows keep their newest positions.
std::int64_t kept_bytes(const KvSpec& spec, std::int64_t tokens);

// The same, with the room that steps, the slack and checkpoints need.
std::int64_t bytes_for_tokens(const KvSpec& spec, std::int64_t tokens);

}  // namespace kvtide
