#include "cli/commands/kv_cost.h"

#include "model/memory_shape.h"
#include "state/spec/bytes.h"

namespace kvtide {

std::optional<std::int64_t> kv_cost(const ModelConfig& config, DType type, std::int64_t tokens) {
  if (config.head_dim % dtype_info(type).block_elements != 0) return std::nullopt;
  KvSpec spec = memory_shape(config);
  spec.key_type = spec.value_type = type;
  return kept_bytes(spec, tokens);
}

}  // namespace kvtide
