// kv_cost.h: what the KV memory of a model would cost, from its shape alone.
#pragma once

#include <cstdint>
#include <optional>

#include "model/config/config.h"
#include "tensor/dtype.h"

namespace kvtide {

// Types of keys and values, as the flags have them.
inline constexpr DType kKvTypes[] = {DType::f32, DType::f16, DType::q8_0};

// Bytes of keys and values of `tokens` tokens: layers with a sliding window keep only their newest positions.
// nullopt when a head is not a whole number of the type's blocks.
std::optional<std::int64_t> kv_cost(const ModelConfig& config, DType type, std::int64_t tokens);

}  // namespace kvtide
