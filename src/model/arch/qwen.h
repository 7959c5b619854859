// qwen.h: what the config.json of Qwen 2 and 3 share: a sliding window that is off unless use_sliding_window
// says otherwise, and then begins behind max_window_layers.
#pragma once

#include "model/config/folder_config.h"

namespace kvtide {

inline void read_qwen(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  require_silu(json);
  config.ropes = {read_folder_rope(json, config, 10000.0)};
  if (json.flag("use_sliding_window", false))
    read_windows(json, config, json.count("max_window_layers", 0, 1024, 28));
}

}  // namespace kvtide
