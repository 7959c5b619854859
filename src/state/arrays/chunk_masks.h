// chunk_masks.h: the masks of an exported model read back: which columns of a call are active, where they are
// written and what they see. The counterpart of kvtide/masks.h.
//
// A pure function, any thread. Rules, each refused with the column and the slot
//   1. The active columns come first; column t of them is written to slot position + t, by a single 1.
//   2. Column t sees exactly the slots [lo, position + t], and at most the layer's window of them.
//   3. Columns that are not active are written nowhere and see nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

struct MaskShape {
  std::int64_t columns = 0;            // T
  std::int64_t slots = 0;              // S
  Pos position = 0;                    // slots in use
  std::optional<std::int64_t> window;  // newest slots that a column may see; nullopt: all
};

// attention [T][S]: 0 visible, -1e4 or less hidden; write [S][T]: 0 or 1. Returns lo of every active column,
// one at least. Throws Error: invalid_argument, context_full (no slot is left).
std::vector<Pos> read_masks(const MaskShape& shape, std::span<const float> attention,
                            std::span<const float> write);

}  // namespace kvtide
