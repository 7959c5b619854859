#include "cli/output/kv_cost.h"

#include <algorithm>

#include "base/text.h"
#include "cli/output/session_words.h"
#include "cli/output/terminal.h"
#include "model/loaded_model.h"
#include "model/memory_shape.h"
#include "state/checkpoints.h"
#include "state/spec/bytes.h"
#include "tensor/element_type.h"

namespace kvtide {

std::optional<std::int64_t> kv_cost(const ModelConfig& config, DType type, std::int64_t tokens) {
  KvSpec spec = memory_shape(config);
  for (const LayerSpec& layer : spec.layers)
    if (layer.head_dim % dtype_info(type).block_elements != 0) return std::nullopt;
  spec.key_type = spec.value_type = type;
  return kept_bytes(spec, tokens);
}

std::int64_t carried_cost(const ModelConfig& config) { return carried_bytes(memory_shape(config)); }

std::int64_t checkpoint_cost(const ModelConfig& config, DType type) {
  constexpr Pos kFar = Pos{1} << 30;  // no window reaches from here to the beginning
  KvSpec spec = memory_shape(config);
  spec.key_type = spec.value_type = type;
  return needs_checkpoints(spec) ? checkpoint_bytes(spec, {kFar}) : 0;
}

namespace {

std::int64_t full_bytes(const Session& session, ElementType keys, ElementType values, std::int64_t tokens) {
  KvSpec spec = memory_shape(session.model().internals().config);
  spec.key_type = row_dtype(keys);
  spec.value_type = row_dtype(values);
  return kept_bytes(spec, tokens);
}

}  // namespace

std::int64_t full_cache_bytes(const Session& session, std::int64_t tokens) {
  return full_bytes(session, session.options().key_type, session.options().value_type, tokens);
}

std::string full_cache_words(const Session& session, std::int64_t tokens) {
  ElementType keys = ElementType::f16, values = ElementType::f16;
  if (!session.options().procedural) {
    keys = session.options().key_type;
    values = session.options().value_type;
  }
  const std::string types =
      keys == values ? element_type_name(keys) : cat(element_type_name(keys), "/", element_type_name(values));
  return cat("a full ", types, " cache would take ", bytes_text(full_bytes(session, keys, values, tokens)));
}

std::int64_t expected_kv_bytes(const Session& session, std::int64_t tokens) {
  const std::int64_t all = full_cache_bytes(session, session.position() + tokens);
  if (const auto plan = session.procedural_plan()) return std::min(all, plan->total());
  return std::min(all, full_cache_bytes(session, std::min(session.rows() + tokens, most_held(session))));
}

}  // namespace kvtide
