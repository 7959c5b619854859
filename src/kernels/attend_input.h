// attend_input.h: what attention is computed of: the shape, the queries and the spans of one layer.
//
// Ownership: refers to the caller's queries and spans.
// Thread rules: plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attend_kernel.h"
#include "kernels/span.h"

namespace kvtide {

struct AttendShape {
  Pos first = 0;  // position of the first token of the chunk
  std::int64_t tokens = 0;
  int heads = 0;     // query heads
  int kv_heads = 0;  // divides heads
  int head_dim = 0;  // 1 .. kMaxHeadDim
  float scale = 0.0f;
  std::optional<std::int64_t> window;  // rows a query sees, its own included; nullopt: all
  bool bf16 = false;                   // rounds queries, keys, values and softmax weights: changes results
};

// Where a query is seen from, as spans ask for it; the plain view is {0, nullopt}.
struct ViewPoint {
  std::int64_t shift = 0;
  std::optional<Pos> limit;
  Pos seen_from(Pos position) const { return limit ? std::min(position - shift, *limit) : position - shift; }
  friend bool operator==(const ViewPoint&, const ViewPoint&) = default;
};

// What attention is computed of.
struct AttendInput {
  AttendShape shape;
  std::span<const ViewPoint> views;  // all that the spans need, the plain one first
  std::span<const float* const> q;   // per view point: the queries rotated for it, [tokens][heads * head_dim]
  std::span<const std::vector<Span>> spans;  // per KV head, the chunk's own rows included
};

// The tile of a span whose first present row is `row`, at the places [begin, end).
AttendTile tile_of(const Span& span, std::int64_t row, int begin, int end);

// The view points that a list of spans needs, the plain one first.
std::vector<ViewPoint> view_points(std::span<const std::vector<Span>> spans);

}  // namespace kvtide
