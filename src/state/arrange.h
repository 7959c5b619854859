// arrange.h: which rows of a layer's storage hold which positions. Pure functions of positions: used by
// attention, by writing, by byte accounting and by the tests, so that no offset is computed anywhere else.
//
// Two arrangements exist:
//   full   row = position;
//   ring   row = position % ring_rows, for layers whose queries see only the newest `window` positions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

// Consecutive positions in consecutive rows.
struct RowRun {
  std::int64_t row;
  Pos first;
  std::int64_t rows;
  friend bool operator==(const RowRun&, const RowRun&) = default;
};

// Rows a ring needs so that a step of up to `max_append` tokens can be written, and dropped again, while the
// `window` newest positions before it stay readable. A multiple of the attention tile (64), so that no tile
// wraps around.
std::int64_t ring_rows(std::int64_t window, std::int64_t max_append);

// The row of position `pos`. ring: nullopt for the full arrangement.
std::int64_t row_of(Pos pos, std::optional<std::int64_t> ring);

// The rows that the positions [0, end) occupy, oldest first, as far as queries at positions >= `reader` can
// see them through `window`. At most one run (full) or two (ring).
std::vector<RowRun> arrange(Pos end, Pos reader, std::optional<std::int64_t> window,
                            std::optional<std::int64_t> ring);

// Rows of storage that have been written once `end` positions were appended.
std::int64_t rows_used(Pos end, std::optional<std::int64_t> ring);

}  // namespace kvtide
