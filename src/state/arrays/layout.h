// layout.h: the arrays in which other runtimes keep a KV memory, as a plan over the rows of a state.
//
//   layout     arrays                           shape
//   unified    kv_cache                         [2 * layers, kv_heads, capacity, head_dim]: the keys of all
//                                               layers, then the values
//   split      kv_cache_local, kv_cache_global  the same; local: the layers with a window of their own
//   per_layer  layers.I.k_state, .v_state       [1, kv_heads, capacity, head_dim]
//   stacked    keyCache, valueCache, pastLen    [layers, 1, kv_heads, capacity, head_dim]; pastLen [1]
//
// Row i of an array is position first + i as a reader sees it; rows that nobody wrote are zeros. Such an
// array cannot show a gap between positions, nor that a row was moved. So the plan takes only the newest rows
// without a gap between them, and rotates moved keys to where they are seen. It says what it left out and
// what it moved, and the caller decides whether that will do. Pure functions of the state's image.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "state/state_rows.h"

namespace kvtide {

enum class Layout { unified, split, per_layer, stacked };
std::optional<Layout> layout_from_name(std::string_view name);  // "unified", "split", "per-layer", "stacked"

struct LayoutBlock {  // the rows of all heads of one layer
  int layer;
  KvPart part;
};

struct LayoutArray {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
  std::vector<LayoutBlock> blocks;
  PosRange rows;              // positions, as they are seen; the rest of `capacity` is zeros
  std::int64_t capacity = 0;  // rows of the array
};

// What arrays cannot say about some layers of a state.
struct ExactRows {
  PosRange rows;              // the newest positions, as they are seen, of which every layer has a row
  std::int64_t left_out = 0;  // positions below this one were read and are not among them
  std::string why;            // the reason for which they are left out
  std::int64_t moved = 0;     // rows that are seen elsewhere than they were written
};

// windows_apart: the array holds these layers' window by definition, so that older rows are no loss.
ExactRows exact_rows(const StateImage& image, const std::vector<int>& layers, bool windows_apart);

struct LayoutOptions {
  Layout layout = Layout::unified;
  std::optional<DType> dtype;            // nullopt: as stored; q8_0 becomes f32
  std::optional<std::int64_t> capacity;  // nullopt: what the rows need
};

struct StateLayout {
  std::vector<LayoutArray> arrays;
  std::int64_t left_out = 0;  // the largest of its arrays
  std::string why;
  std::int64_t moved = 0;
};

// Throws Error(invalid_argument): rows do not fit the capacity, or layers of different shapes in one array.
StateLayout plan_layout(const StateImage& image, const LayoutOptions& options);

}  // namespace kvtide
