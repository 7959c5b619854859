// kv_cost.h: what the KV memory of a model would cost, from its shape alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kvtide/session.h"
#include "model/config/config.h"
#include "tensor/dtype.h"

namespace kvtide {

// Types of keys and values, as the flags have them.
inline constexpr DType kRowTypes[] = {DType::f32, DType::f16, DType::q8_0, DType::q4_0};

// Bytes of keys and values of `tokens` tokens: layers with a sliding window keep only their newest positions.
// nullopt when a head is not a whole number of the type's blocks.
std::optional<std::int64_t> kv_cost(const ModelConfig& config, DType type, std::int64_t tokens);

// Bytes of what layers carry from token to token beside rows, whatever the length of the text.
std::int64_t carried_cost(const ModelConfig& config);

// Bytes that a checkpoint behind a long text keeps: what is carried, and the rows that windows have left by then. 0: the
// memory of such a model can go back to anywhere.
std::int64_t checkpoint_cost(const ModelConfig& config, DType type);

// Bytes of a full cache of `tokens` tokens in the types of this session.
std::int64_t full_cache_bytes(const Session& session, std::int64_t tokens);
// "a full f16 cache would take 2,198 MiB". A procedural memory is compared with f16, whatever types its rows have by now.
std::string full_cache_words(const Session& session, std::int64_t tokens);
// What the session's memory holds, about, when `tokens` more have been read.
std::int64_t expected_kv_bytes(const Session& session, std::int64_t tokens);

}  // namespace kvtide
