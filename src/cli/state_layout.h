// state_layout.h: the arrays in which other runtimes keep a KV memory, as a plan over the rows of a state.
//
//   unified    kv_cache                       [2 * layers, kv_heads, capacity, head_dim]: all keys, then all
//   values split      kv_cache_local, kv_cache_global   as unified: layers with a window of their own apart
//   from the others per-layer  layers.I.k_state, .v_state     [1, kv_heads, capacity, head_dim] stacked
//   keyCache, valueCache           [layers, 1, kv_heads, capacity, head_dim], and pastLen [1]
//
// Row i of an array is position first + i; rows that nobody wrote are zeros. Pure functions of the state's
// image.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/state_rows.h"

namespace kvtide {

struct LayoutBlock {  // the rows of all heads of one layer
  int layer;
  Part part;
};

struct LayoutArray {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;  // f32 or f16
  std::vector<LayoutBlock> blocks;
  PosRange rows;              // positions that are written; the rest of `capacity` is zeros
  std::int64_t capacity = 0;  // rows of the array
};

struct LayoutOptions {
  std::string_view layout;               // one of the four above
  std::optional<DType> dtype;            // nullopt: as stored; q8_0 becomes f32
  std::optional<std::int64_t> capacity;  // nullopt: what the rows need
  bool exact_only = false;
};

struct StateLayout {
  std::vector<LayoutArray> arrays;
  std::int64_t left_out = 0;  // positions that were read and are not in the arrays
  std::string why;            // they are left out
};

// Throws Error(invalid_argument): rows do not fit the capacity, layers of different shapes in one array, or
// (without exact_only) a state that holds more than such arrays can say.
StateLayout plan_layout(const StateImage& image, const LayoutOptions& options);

}  // namespace kvtide
