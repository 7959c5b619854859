// layout_rows.h: copying rows between a state and the arrays of a layout.
//
// Ownership: the caller's bytes. Thread rules: reading as for a const state; writing alone. Units: a block of
// an array is [kv_heads][capacity][head_dim]; these functions move the rows in use of one head.
#pragma once

#include <cstddef>

#include "state/arrays/layout.h"

namespace kvtide {

// Bytes of one row of the array.
std::int64_t row_bytes(const StateImage& image, const LayoutArray& array);

// The rows of the array's range, in its type and one after another, to `out`; those that are not held are
// left as they are. Keys that were moved are rotated to where they are seen.
void read_rows(const StateRows& rows, const LayoutArray& array, const LayoutBlock& block, int head,
               std::byte* out);

// The whole array, rows that are not in use as zeros: [blocks][kv_heads][capacity][head_dim].
void read_array(const StateRows& rows, const LayoutArray& array, std::byte* out);

// The other way, into a state that holds the array's rows where they were written. capacity: rows of the
// array that is read from. Throws Error(invalid_argument) naming the array and the layer for NaN and
// infinity.
void write_array(KvState& state, const LayoutArray& array, const std::byte* bytes, std::int64_t capacity);

}  // namespace kvtide
