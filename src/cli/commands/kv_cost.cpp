#include "cli/commands/kv_cost.h"

#include <algorithm>

namespace kvtide {

std::optional<std::int64_t> kv_cost(const ModelConfig& config, const KvFormat& format, std::int64_t tokens) {
  if (config.head_dim % format.block != 0) return std::nullopt;
  const std::int64_t row = config.head_dim / format.block * format.bytes;
  std::int64_t rows = 0;
  for (const LayerConfig& layer : config.layers) rows += std::min(tokens, layer.window.value_or(tokens));
  return rows * config.kv_heads * row * 2;
}

}  // namespace kvtide
