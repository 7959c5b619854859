// quant_rows.h: activations in 8 bits, laid out as the matrix products walk them.
//
// x = d * q, with one d for every block of 32 elements of a row.
// Rows stand in groups of kGroupRows; the last group has what is left, n rows. Within a group the runs of its rows lie
// side by side: run i of row r of the group at [i * n + r], behind the runs of the groups before it. So a product of
// many rows reads one run of memory. For d, d_sum and minus_sums a run is one number, for q it is kRunBytes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvtide {

// Arm loads four bytes of several rows at once. x86 takes four bytes of one row from anywhere; tiles (matmul.amx.cpp)
// want a block of each of sixteen rows.
#if defined(__aarch64__)
inline constexpr std::int64_t kGroupRows = 8, kRunBytes = 4;
#else
inline constexpr std::int64_t kGroupRows = 16, kRunBytes = 32;
#endif

// Where the runs of one row are: the first one; the next is `stride` runs on.
struct QuantRow {
  std::int64_t stride = 0;             // rows of the group
  std::int8_t* q = nullptr;            // [k / kRunBytes] of as many
  float* d = nullptr;                  // [k / 32]
  float* d_sum = nullptr;              // [k / 32]: d times the sum of the block's q
  std::int32_t* minus_sums = nullptr;  // [k / 32][2]: minus the sum of the block's q, then of its second half

  // Elements 4 i .. 4 i + 3.
  std::int8_t* four(std::int64_t i) const {
    return q + i * 4 / kRunBytes * stride * kRunBytes + i * 4 % kRunBytes;
  }
};

// Kernels read it only. Not owning.
struct QuantRows {
  std::int64_t rows = 0, k = 0;
  QuantRow first;  // of the first row; its stride does not count

  bool empty() const { return first.q == nullptr; }

  QuantRow row(std::int64_t m) const {
    const std::int64_t begin = m / kGroupRows * kGroupRows, in = m - begin;
    return {std::min(kGroupRows, rows - begin), first.q + begin * k + in * kRunBytes,
            first.d + begin * (k / 32) + in, first.d_sum + begin * (k / 32) + in,
            first.minus_sums + begin * (k / 16) + in};
  }
  // Rows [begin, begin + count): whole groups, or up to the end.
  QuantRows part(std::int64_t begin, std::int64_t count) const { return {count, k, row(begin)}; }
};

}  // namespace kvtide
