// The lists of tensors of the usual layouts.
#include "base/out_of_memory.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "kvtide/named_state.h"

namespace kvtide {
namespace {

std::optional<std::int64_t> window_of(const KvShape& shape, std::int64_t layer) {
  return shape.windows.empty() ? std::nullopt : shape.windows[static_cast<std::size_t>(layer)];
}

void check(const KvShape& shape, bool one_type) {
  if (!shape.windows.empty() && static_cast<std::int64_t>(shape.windows.size()) != shape.layers)
    throw Error(ErrorCode::invalid_argument,
                cat("a state of ", shape.layers, " layers needs that many windows or none, not ",
                    shape.windows.size()));
  if (one_type && shape.key_type != shape.value_type)
    throw Error(ErrorCode::invalid_argument,
                "keys and values of one tensor have one type; other layouts keep them apart");
}

// One tensor cannot hold windows beside layers that keep everything.
std::optional<std::int64_t> common_window(const KvShape& shape) {
  for (std::int64_t layer = 1; layer < shape.layers; ++layer)
    if (window_of(shape, layer) != window_of(shape, 0))
      throw Error(
          ErrorCode::invalid_argument,
          cat("layers 0 and ", layer, " have other windows; the layouts split and per layer hold them"));
  return shape.layers > 0 ? window_of(shape, 0) : std::nullopt;
}

std::int64_t rows_of(const KvShape& shape, std::optional<std::int64_t> window) {
  return window ? std::min(*window, shape.capacity) : shape.capacity;
}

TensorSpec both(const char* name, const KvShape& shape, std::int64_t layers,
                std::optional<std::int64_t> window) {
  return {name,
          TensorRole::keys_and_values,
          {2 * layers, shape.kv_heads, rows_of(shape, window), shape.head_dim},
          shape.key_type,
          window};
}

}  // namespace

StateSpec unified_spec(const KvShape& shape) try {
  check(shape, true);
  StateSpec spec;
  spec.tensors = {both("kv_cache", shape, shape.layers, common_window(shape))};
  return spec;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

StateSpec split_spec(const KvShape& shape) try {
  check(shape, true);
  std::int64_t local = 0;
  std::optional<std::int64_t> window;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const auto own = window_of(shape, layer);
    if (!own) continue;
    if (window && *window != *own)
      throw Error(ErrorCode::invalid_argument,
                  cat("layers with windows of ", *window, " and ", *own, " do not fit one local tensor"));
    window = own;
    ++local;
  }
  StateSpec spec;
  if (local > 0) spec.tensors.push_back(both("kv_cache_local", shape, local, window));
  if (local < shape.layers)
    spec.tensors.push_back(both("kv_cache_global", shape, shape.layers - local, std::nullopt));
  return spec;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

StateSpec per_layer_spec(const KvShape& shape) try {
  check(shape, false);
  StateSpec spec;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const auto window = window_of(shape, layer);
    const std::vector<std::int64_t> extents{1, shape.kv_heads, rows_of(shape, window), shape.head_dim};
    spec.tensors.push_back(
        {cat("layers.", layer, ".k_state"), TensorRole::keys, extents, shape.key_type, window});
    spec.tensors.push_back(
        {cat("layers.", layer, ".v_state"), TensorRole::values, extents, shape.value_type, window});
  }
  return spec;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

StateSpec stacked_spec(const KvShape& shape) try {
  check(shape, false);
  const auto window = common_window(shape);
  const std::vector<std::int64_t> extents{shape.layers, 1, shape.kv_heads, rows_of(shape, window),
                                          shape.head_dim};
  StateSpec spec;
  spec.tensors = {{"keyCache", TensorRole::keys, extents, shape.key_type, window},
                  {"valueCache", TensorRole::values, extents, shape.value_type, window},
                  {"pastLen", TensorRole::position, {1}, ElementType::i32}};
  return spec;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
