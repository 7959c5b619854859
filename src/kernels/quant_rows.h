// quant_rows.h: activations in 8 bits, laid out as the matrix products walk them.
//
// x = d * q, with one d for every block of 32 elements of a row.
// Rows stand in groups of eight; the last group has what is left, n rows. Within a group the entries of its rows lie
// side by side: entry i of row r of the group at [i * n + r], behind the entries of the groups before it. So a
// product of eight rows reads one run of memory.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvtide {

inline constexpr std::int64_t kGroupRows = 8;

// Where the entries of one row are: the first one; the next is `stride` entries on, and the entries of the next row
// of the group are one entry on. An entry of q is four bytes.
struct QuantRow {
  std::int64_t stride = 0;             // rows of the group
  std::int8_t* q = nullptr;            // [k / 4] of four
  float* d = nullptr;                  // [k / 32]
  float* d_sum = nullptr;              // [k / 32]: d times the sum of the block's q
  std::int32_t* minus_sums = nullptr;  // [k / 32][2]: minus the sum of the block's q, then of its second half
};

// Kernels read it only. Not owning.
struct QuantRows {
  std::int64_t rows = 0, k = 0;
  QuantRow first;  // of the first row; its stride does not count

  bool empty() const { return first.q == nullptr; }

  QuantRow row(std::int64_t m) const {
    const std::int64_t begin = m / kGroupRows * kGroupRows, in = m - begin;
    return {std::min(kGroupRows, rows - begin), first.q + begin * k + in * 4, first.d + begin * (k / 32) + in,
            first.d_sum + begin * (k / 32) + in, first.minus_sums + begin * (k / 16) + in};
  }
  // Rows [begin, begin + count): whole groups, or up to the end.
  QuantRows part(std::int64_t begin, std::int64_t count) const { return {count, k, row(begin)}; }
};

}  // namespace kvtide
