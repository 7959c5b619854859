#include "eval/control.h"

#include <algorithm>

#include "engine/session_spec.h"
#include "model/loaded_model.h"
#include "state/procedural/budget.h"
#include "state/spec/bytes.h"

namespace kvtide {
namespace {

constexpr std::int64_t kSinks = 4, kLeastWindow = 16;

// What only speed and arithmetic depend on.
SessionOptions plain(const SessionOptions& like) {
  SessionOptions o;
  o.exact = like.exact;
  o.threads = like.threads;
  o.prefill_chunk = like.prefill_chunk;
  o.kernels = like.kernels;
  return o;
}

}  // namespace

ElementType old_rows_type(const Model& model, const SessionOptions& like) {
  if (!like.procedural) return like.key_type;
  return like.procedural->row_type == RowType::f16 || model.internals().config.head_dim % 32 != 0
             ? ElementType::f16
             : ElementType::q8_0;
}

SessionOptions full_cache(const Model& model, const SessionOptions& like, std::int64_t tokens) {
  SessionOptions o = plain(like);
  const std::int64_t trained = model.context_length();
  o.context = std::min(tokens, trained);
  if (tokens > trained && trained > kSinks) o.rolling = Rolling{kSinks, trained - kSinks};
  return o;
}

std::int64_t most_kv_bytes(const Model& model, const SessionOptions& options, std::int64_t tokens) {
  const ModelConfig& config = model.internals().config;
  const KvSpec spec = kv_spec(config, completed(config, options));
  return spec.procedural ? most_bytes(spec, tokens).total() : kept_bytes(spec, tokens);
}

SessionOptions window_of_bytes(const Model& model, const SessionOptions& like, std::int64_t bytes,
                               std::int64_t tokens) {
  const ModelConfig& config = model.internals().config;
  SessionOptions o = plain(like);
  o.key_type = o.value_type = old_rows_type(model, like);
  const std::int64_t longest = std::max(kLeastWindow, std::min(tokens, model.context_length()) - kSinks);
  std::int64_t low = kLeastWindow, high = longest;
  const auto bytes_of = [&](std::int64_t window) {
    o.rolling = Rolling{kSinks, window};
    o.context = kSinks + window;
    return kept_bytes(kv_spec(config, o), tokens);
  };
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (bytes_of(middle) <= bytes)
      low = middle;
    else
      high = middle - 1;
  }
  bytes_of(low);
  return o;
}

SessionOptions window_beside(const Model& model, const SessionOptions& options, std::int64_t tokens) {
  return window_of_bytes(model, options, most_kv_bytes(model, options, tokens), tokens);
}

}  // namespace kvtide
