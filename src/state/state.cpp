#include "state/state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "kvtide/error.h"
#include "state/arrange.h"

namespace kvtide {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kMostTokens = std::int64_t{1}
                                     << 40;  // sums of a few token counts stay far from overflow

std::int64_t pages(std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void check(const StateSpec& spec) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "KV state: " + why);
  };
  if (spec.layers.empty()) refuse("needs at least one layer");
  if (spec.capacity < 1) refuse(cat("capacity must be at least 1 token, not ", spec.capacity));
  if (spec.max_append < 1) refuse(cat("the largest step must be at least 1 token, not ", spec.max_append));
  for (const std::int64_t tokens : {spec.capacity, spec.max_append})
    if (tokens > kMostTokens)
      refuse(cat("capacity and step may be at most ", kMostTokens, " tokens, not ", tokens));
  for (const DType dtype : {spec.key_type, spec.value_type})
    if (dtype != DType::f16 && dtype != DType::f32)
      refuse(cat("keys and values are kept as f16 or f32, not ", dtype_info(dtype).name));
  for (const auto& layer : spec.layers) {
    if (layer.kv_heads < 1) refuse("a layer needs at least one KV head");
    if (layer.head_dim < 1 || layer.head_dim > kMaxHeadDim)
      refuse(cat("head_dim must be between 1 and ", kMaxHeadDim, ", not ", layer.head_dim));
    if (layer.window && (*layer.window < 1 || *layer.window > kMostTokens))
      refuse(cat("a window must be at least 1 and at most ", kMostTokens, " positions, not ", *layer.window));
  }
}

std::optional<std::int64_t> ring_of(const StateSpec& spec, const LayerSpec& layer) {
  if (!layer.window) return std::nullopt;
  const std::int64_t rows = ring_rows(*layer.window, spec.max_append);
  return rows < spec.capacity ? std::optional(rows)
                              : std::nullopt;  // a ring that never turns is a plain run of rows
}

}  // namespace

std::int64_t bytes_per_token(const StateSpec& spec) {
  std::int64_t bytes = 0;
  for (const auto& layer : spec.layers)
    if (!layer.window)
      bytes += layer.kv_heads *
               (dtype_bytes(spec.key_type, layer.head_dim) + dtype_bytes(spec.value_type, layer.head_dim));
  return bytes;
}

std::int64_t bytes_for_tokens(const StateSpec& spec, std::int64_t tokens) {
  std::int64_t bytes = tokens * bytes_per_token(spec);
  for (const auto& layer : spec.layers)
    if (layer.window)
      bytes += std::min(tokens, ring_rows(*layer.window, spec.max_append)) * layer.kv_heads *
               (dtype_bytes(spec.key_type, layer.head_dim) + dtype_bytes(spec.value_type, layer.head_dim));
  return bytes;
}

KvState::KvState(StateSpec spec) : spec_(std::move(spec)) {
  check(spec_);
  for (const auto& layer : spec_.layers) {
    Layer out{};
    out.ring = ring_of(spec_, layer);
    out.key_row = dtype_bytes(spec_.key_type, layer.head_dim);
    out.value_row = dtype_bytes(spec_.value_type, layer.head_dim);
    const auto rows = static_cast<std::uint64_t>(out.ring.value_or(spec_.capacity));
    const auto widest = static_cast<std::uint64_t>(std::max(out.key_row, out.value_row));
    const auto region = checked_mul(rows, widest);
    const auto total =
        region ? checked_mul(*region + kPage, 2 * static_cast<std::uint64_t>(layer.kv_heads)) : region;
    if (!total)
      throw Error(ErrorCode::invalid_argument,
                  cat("KV state: a capacity of ", spec_.capacity, " tokens is more than memory can address"));
    out.key_region = pages(static_cast<std::int64_t>(rows) * out.key_row);
    out.value_region = pages(static_cast<std::int64_t>(rows) * out.value_row);
    out.memory = Buffer(static_cast<std::size_t>(layer.kv_heads * (out.key_region + out.value_region)));
    layers_.push_back(std::move(out));
  }
}

std::byte* KvState::key_region(const Layer& layer, int kv_head) const {
  return const_cast<std::byte*>(layer.memory.data()) + kv_head * layer.key_region;
}

std::byte* KvState::value_region(const Layer& layer, int layer_heads, int kv_head) const {
  return const_cast<std::byte*>(layer.memory.data()) + layer_heads * layer.key_region +
         kv_head * layer.value_region;
}

std::int64_t KvState::held_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::int64_t rows = rows_used(position_, layers_[i].ring);
    bytes +=
        spec_.layers[i].kv_heads * (pages(rows * layers_[i].key_row) + pages(rows * layers_[i].value_row));
  }
  return bytes;
}

KvState::Step KvState::begin(std::int64_t tokens) {
  if (tokens < 1 || tokens > spec_.max_append)
    throw Error(ErrorCode::invalid_argument,
                cat("KV state: a step takes 1 to ", spec_.max_append, " tokens, not ", tokens));
  if (tokens > spec_.capacity - position_)
    throw Error(ErrorCode::context_full, cat("the context is full: ", position_, " of ", spec_.capacity,
                                             " tokens are used and ", tokens, " more do not fit"));
  return Step(*this, tokens);
}

void KvState::clear() {
  position_ = 0;
  for (auto& layer : layers_) layer.memory.give_back(0, layer.memory.size());
}

void KvState::Step::write(const ElementwiseRow& kernels, int layer, int kv_head, std::int64_t token,
                          const float* key, const float* value) {
  const auto index = static_cast<std::size_t>(layer);
  const LayerSpec& spec = state_.spec_.layers[index];
  const Layer& storage = state_.layers_[index];
  const std::int64_t row = row_of(first_ + token, storage.ring);
  const auto put = [&](std::byte* target, DType dtype, const float* source) {
    if (dtype == DType::f16)
      kernels.to_f16(source, spec.head_dim, reinterpret_cast<std::uint16_t*>(target));
    else
      std::memcpy(target, source, static_cast<std::size_t>(spec.head_dim) * sizeof(float));
  };
  put(state_.key_region(storage, kv_head) + row * storage.key_row, state_.spec_.key_type, key);
  put(state_.value_region(storage, spec.kv_heads, kv_head) + row * storage.value_row, state_.spec_.value_type,
      value);
}

std::vector<Span> KvState::Step::spans(int layer, int kv_head) const {
  const auto index = static_cast<std::size_t>(layer);
  const LayerSpec& spec = state_.spec_.layers[index];
  const Layer& storage = state_.layers_[index];
  std::vector<Span> spans;
  for (const RowRun& run : arrange(first_ + tokens_, first_, spec.window, storage.ring)) {
    Span span;
    span.keys = state_.key_region(storage, kv_head) + run.row * storage.key_row;
    span.values = state_.value_region(storage, spec.kv_heads, kv_head) + run.row * storage.value_row;
    span.key_type = state_.spec_.key_type;
    span.value_type = state_.spec_.value_type;
    span.key_stride = storage.key_row;
    span.value_stride = storage.value_row;
    span.rows = run.rows;
    span.first = run.first;
    spans.push_back(span);
  }
  return spans;
}

void KvState::Step::commit() { state_.position_ = first_ + tokens_; }

}  // namespace kvtide
