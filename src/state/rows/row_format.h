// row_format.h: how the rows of one layer lie in memory: their bytes, strides and pages. Pure functions.
//
// Rows of a head follow one another, every head in a region of its own, keys and values apart: attention streams
// them. Each region has up to two pages that are not full, which is much of a budget where windows are short and layers
// small. There a position's rows of all heads lie side by side, keys before values: one region for the layer.
#pragma once

#include <cstdint>

#include "state/spec/spec.h"

namespace kvtide {

// Bytes of the rows of one layer.
struct RowFormat {
  int kv_heads = 0;
  std::int64_t key_bytes = 0;  // of one row of one head
  std::int64_t value_bytes = 0;
  bool values_in_keys = false;  // a value is read where its key lies, and has no memory of its own
  bool heads_together = false;  // a position's rows of all heads lie side by side
  friend bool operator==(const RowFormat&, const RowFormat&) = default;

  // From one row of a head to its next.
  std::int64_t key_stride() const { return heads_together ? position_stride() : key_bytes; }
  std::int64_t value_stride() const { return heads_together ? position_stride() : value_bytes; }
  // Side by side: where the values of a position begin, and from one position to the next.
  std::int64_t values_at() const;
  std::int64_t position_stride() const;
};

// Of a layer of a state with this spec, in the types the spec has or in others.
RowFormat row_format(const KvSpec& spec, const LayerSpec& layer);
RowFormat row_format(const KvSpec& spec, const LayerSpec& layer, const RowStage& types);

// Bytes of the pages that rows [first, last) of one layer occupy.
std::int64_t page_bytes(const RowFormat& format, std::int64_t first, std::int64_t last);
// The most that `rows` consecutive rows occupy, wherever they begin, and with two forks among them.
std::int64_t most_page_bytes(const RowFormat& format, std::int64_t rows);
// The same from the first row on. Forks go on with a tile of attention (64 rows): where tiles are whole pages, no page
// is there twice.
std::int64_t most_page_bytes_from_start(const RowFormat& format, std::int64_t rows);

}  // namespace kvtide
