#include "state/spec/bytes.h"

#include <algorithm>

namespace kvtide {
namespace {

// Rows of a layer that stay of any number of tokens; nullopt: all of them.
std::optional<std::int64_t> most_rows(const KvSpec& spec, const LayerSpec& layer) {
  if (layer.window) return *layer.window;
  if (spec.rolling) return spec.rolling->sinks + spec.rolling->window;
  return std::nullopt;
}

// Likewise, with what steps and the slack need.
std::optional<std::int64_t> most_rows_with_steps(const KvSpec& spec, const LayerSpec& layer) {
  if (const auto rows = most_rows(spec, layer)) return *rows + spec.max_step + spec.slack;
  if (spec.procedural)
    return spec.procedural->sinks + spec.procedural->window + spec.procedural->block + spec.slack;
  return std::nullopt;
}

// Of `tokens` tokens, of which a layer keeps as many rows as `most` says.
std::int64_t bytes_of_rows(const KvSpec& spec, std::int64_t tokens,
                           std::optional<std::int64_t> (*most)(const KvSpec&, const LayerSpec&)) {
  std::int64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers)
    bytes += std::min(tokens, most(spec, layer).value_or(tokens)) * row_bytes(spec, layer);
  return bytes;
}

}  // namespace

std::int64_t row_bytes(const LayerSpec& layer, DType key_type, DType value_type) {
  return layer.kv_heads * (dtype_bytes(key_type, layer.head_dim) + dtype_bytes(value_type, layer.head_dim));
}

std::int64_t row_bytes(const KvSpec& spec, const LayerSpec& layer) {
  if (keeps_rows_once(spec, layer)) return layer.kv_heads * dtype_bytes(spec.key_type, layer.head_dim);
  return row_bytes(layer, spec.key_type, spec.value_type);
}

std::int64_t recurrent_elements(const RecurrentSpec& spec) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : spec.shape) elements *= extent;
  return elements;
}

std::int64_t recurrent_bytes(const RecurrentSpec& spec) {
  return dtype_bytes(spec.dtype, recurrent_elements(spec));
}

std::int64_t carried_bytes(const KvSpec& spec) {
  std::int64_t bytes = 0;
  for (const RecurrentSpec& tensor : spec.recurrent) bytes += recurrent_bytes(tensor);
  return bytes;
}

std::int64_t kept_bytes(const KvSpec& spec, std::int64_t tokens) {
  return bytes_of_rows(spec, tokens, most_rows);
}

std::int64_t bytes_for_tokens(const KvSpec& spec, std::int64_t tokens) {
  const std::int64_t bytes = bytes_of_rows(spec, tokens, most_rows_with_steps);
  if (spec.procedural || spec.checkpoints.every == 0) return bytes;
  if (spec.rolling) return bytes + spec.checkpoints.budget;  // which reads more tokens than it has capacity
  // Rows that a window would have let go of are all that checkpoints can keep.
  const std::int64_t all = bytes_of_rows(
      spec, tokens, [](const KvSpec&, const LayerSpec&) { return std::optional<std::int64_t>(); });
  return bytes + std::min(all - bytes, spec.checkpoints.budget);
}

}  // namespace kvtide
