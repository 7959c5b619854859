// attend.h: attention of a chunk of tokens over the spans of one layer, spread over the threads.
//
// out[t][head] = softmax over visible rows of (q.k * scale + log mass), times values. A query at position p
// sees the rows of [max(0, p - window + 1), p], and every row that has no position. The fold is a fixed tree
// (idea 5): tiles of 64 positions, aligned to position 0 (to the row index for rows without a position), fold
// into groups of 1,024 positions, groups into the result, in order. Chunking, threads and where rows lie in
// memory change nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
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

// The tile of a span whose first present row is `row`, at the places [begin, end).
AttendTile tile_of(const Span& span, std::int64_t row, int begin, int end);

// The view points that a list of spans needs, the plain one first.
std::vector<ViewPoint> view_points(std::span<const std::vector<Span>> spans);

// out: [tokens][heads * head_dim]. q[i]: the queries rotated for view point i, of the same shape. spans[h]:
// the rows of KV head h, the chunk's own included. log_mass: [tokens][heads], the logarithm of the sum under
// each softmax, in nats; or nullptr.
void attend(ThreadPool& pool, const AttendRow& kernels, const AttendShape& shape,
            std::span<const ViewPoint> view_points, std::span<const float* const> q,
            std::span<const std::vector<Span>> spans, float* out, float* log_mass = nullptr);

}  // namespace kvtide
