// kv_cost.h: what the KV memory of a model would cost, from its shape alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kvtide/session.h"
#include "model/config/config.h"

namespace kvtide {

struct KvFormat {
  std::string_view name;
  std::int64_t block;  // elements
  std::int64_t bytes;  // of a block
};

// q8_0 keeps a scale of two bytes beside every 32 numbers.
inline constexpr KvFormat kKvFormats[] = {{"f32", 1, 4}, {"f16", 1, 2}, {"q8_0", 32, 34}};

// Bytes of keys and values of `tokens` tokens: layers with a sliding window keep only their newest positions.
// nullopt when a head is not a whole number of the format's blocks.
std::optional<std::int64_t> kv_cost(const ModelConfig& config, const KvFormat& format, std::int64_t tokens);

// Bytes of a full cache of `tokens` tokens in the types of this session.
std::int64_t full_cache_bytes(const Session& session, std::int64_t tokens);
// What the session's memory holds, about, when `tokens` more have been read.
std::int64_t expected_kv_bytes(const Session& session, std::int64_t tokens);

}  // namespace kvtide
