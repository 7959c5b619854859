// gguf_config.h: what the metadata of all architectures in GGUF files have in common. For the files of arch/.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/gguf.h"
#include "model/config/config.h"

namespace kvtide {

// Sizes, heads, norms, rotation and vocabulary; of models without attention (head_count 0) no heads.
// uneven: layers may differ in their KV heads and in the width of their feed-forward; 0: they have none. Throws Error: bad_format, unsupported.
void read_common(const GgufFile& file, bool uneven, ModelConfig& config);

// A sliding window that holds for every layer, where the file has one.
void read_one_window(const GgufFile& file, ModelConfig& config);

// Experts behind a router of one matrix; `shared`: the architecture knows some that every token passes.
ExpertsConfig read_experts(const GgufFile& file, bool shared = false);

// A numeric key of the model's architecture: "<architecture>.<key>" as an integer in [low, high].
std::int64_t read_count(const GgufFile& file, std::string_view key, std::int64_t low, std::int64_t high,
                        std::optional<std::int64_t> fallback = std::nullopt);
double read_real(const GgufFile& file, std::string_view key, double low, double high,
                 std::optional<double> fallback = std::nullopt);

}  // namespace kvtide
