// gemma4_layers.h: what both formats of Gemma 4 say of its layers ends here. For gemma4.cpp and gemma4_folder.cpp.
#pragma once

#include <string>

#include "base/json/json_fields.h"
#include "model/config/config.h"

namespace kvtide::gemma4 {

inline constexpr std::int64_t kWide = std::int64_t{1} << 20, kLong = std::int64_t{1} << 31;
inline constexpr double kSlidingBase = 10000.0;  // of the rotation in layers with a window

// What all models of the family have.
void set_common(ModelConfig& config);
// Layers with a window have their own heads and rotation; `shared` layers at the end read the rows of the last layer of
// their kind before them. Throws Error: bad_format, unsupported.
void set_layers(const std::string& file, const HeadsConfig& sliding, std::int64_t shared,
                ModelConfig& config);
// Beside the feed-forward. Throws Error(bad_format).
void add_experts(const std::string& file, ExpertsConfig experts, ModelConfig& config);

// A config.json.
void read(const JsonFields& json, ModelConfig& config);

}  // namespace kvtide::gemma4
