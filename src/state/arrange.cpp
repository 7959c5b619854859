#include "state/arrange.h"

#include <algorithm>

namespace kvtide {

std::int64_t ring_rows(std::int64_t window, std::int64_t max_append) {
  constexpr std::int64_t kTile = 64;
  return (window + max_append + kTile - 1) / kTile * kTile;
}

std::int64_t row_of(Pos pos, std::optional<std::int64_t> ring) { return ring ? pos % *ring : pos; }

std::vector<RowRun> arrange(Pos end, Pos reader, std::optional<std::int64_t> window,
                            std::optional<std::int64_t> ring) {
  const Pos first = window ? std::max<Pos>(0, reader - *window + 1) : 0;
  if (first >= end) return {};
  if (!ring) return {{first, first, end - first}};
  const std::int64_t row = first % *ring;
  const std::int64_t before_wrap = std::min(end - first, *ring - row);
  std::vector<RowRun> runs{{row, first, before_wrap}};
  if (before_wrap < end - first) runs.push_back({0, first + before_wrap, end - first - before_wrap});
  return runs;
}

std::int64_t rows_used(Pos end, std::optional<std::int64_t> ring) {
  return ring ? std::min(end, *ring) : end;
}

}  // namespace kvtide
