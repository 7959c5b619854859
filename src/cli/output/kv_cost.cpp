#include "cli/output/kv_cost.h"

#include <algorithm>

#include "cli/output/session_words.h"
#include "model/loaded_model.h"

namespace kvtide {

std::optional<std::int64_t> kv_cost(const ModelConfig& config, const KvFormat& format, std::int64_t tokens) {
  if (config.head_dim % format.block != 0) return std::nullopt;
  const std::int64_t row = config.head_dim / format.block * format.bytes;
  std::int64_t rows = 0;
  for (const LayerConfig& layer : config.layers) rows += std::min(tokens, layer.window.value_or(tokens));
  return rows * config.kv_heads * row * 2;
}

std::int64_t full_cache_bytes(const Session& session, std::int64_t tokens) {
  const ModelConfig& config = session.model().internals().config;
  std::int64_t bytes = 0;
  for (const KvType type : {session.options().key_type, session.options().value_type})
    for (const KvFormat& format : kKvFormats)
      if (format.name == kv_type_name(type)) bytes += kv_cost(config, format, tokens).value_or(0) / 2;
  return bytes;
}

std::int64_t expected_kv_bytes(const Session& session, std::int64_t tokens) {
  const std::int64_t all = full_cache_bytes(session, session.position() + tokens);
  if (const auto plan = session.procedural_plan()) return std::min(all, plan->total());
  return std::min(all, full_cache_bytes(session, std::min(session.rows() + tokens, most_held(session))));
}

}  // namespace kvtide
