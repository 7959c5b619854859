// quant_memory.h: QuantRows with memory of their own, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/quant_rows.h"

namespace kvtide::testing {

// Memory: std::vector, or one that ends where nothing may be touched.
template <template <class...> class Memory = std::vector>
struct QuantMemory {
  Memory<std::int8_t> q;
  Memory<float> d, d_sum;
  Memory<std::int32_t> minus_sums;
  QuantRows rows;

  QuantMemory(std::int64_t row_count, std::int64_t k)
      : q(static_cast<std::size_t>(row_count * k)),
        d(static_cast<std::size_t>(row_count * k / 32)),
        d_sum(static_cast<std::size_t>(row_count * k / 32)),
        minus_sums(static_cast<std::size_t>(row_count * k / 16)),
        rows{row_count, k, {0, q.data(), d.data(), d_sum.data(), minus_sums.data()}} {}
  QuantMemory(const QuantMemory&) = delete;

  // Quantised by the table.
  QuantMemory(const ElementwiseRow& table, const float* x, std::int64_t row_count, std::int64_t k)
      : QuantMemory(row_count, k) {
    for (std::int64_t m = 0; m < row_count; ++m) table.quantize(x + m * k, k, rows.row(m));
  }
};

// Quants and steps in natural order, laid out with their sums.
inline void lay_out(const std::int8_t* q, const float* d, const QuantRows& out) {
  for (std::int64_t m = 0; m < out.rows; ++m) {
    const QuantRow row = out.row(m);
    for (std::int64_t b = 0; b < out.k / 32; ++b) {
      std::int32_t sums[2] = {};
      for (std::int64_t i = 0; i < 32; ++i) {
        const std::int8_t value = q[m * out.k + b * 32 + i];
        row.four(b * 8 + i / 4)[i % 4] = value;
        sums[i / 16] += value;
      }
      row.d[b * row.stride] = d[m * (out.k / 32) + b];
      row.d_sum[b * row.stride] = row.d[b * row.stride] * static_cast<float>(sums[0] + sums[1]);
      row.minus_sums[2 * b * row.stride] = -(sums[0] + sums[1]);
      row.minus_sums[(2 * b + 1) * row.stride] = -sums[1];
    }
  }
}

}  // namespace kvtide::testing
