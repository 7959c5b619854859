// matrix_rows.h: the rows of a weight matrix as numbers, whatever its type: for exports.
//
//   each_matrix_row(kernels, pool, matrix, 0, matrix.rows, [&](std::int64_t row, const float* values) { .. });
//
// The rows [first, last) come in any order, on any thread of the pool, numbered from `first` on; `values` holds `columns` numbers
// during the call.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"

namespace kvtide {

template <class Body>
void each_matrix_row(const Kernels& kernels, ThreadPool& pool, const WeightMatrix& matrix, std::int64_t first,
                     std::int64_t last, Body body) {
  const std::int64_t first_panel = first / kPanelRows, panels = (last + kPanelRows - 1) / kPanelRows;
  pool.run(panels - first_panel, [&](std::int64_t item) {
    std::vector<float> values(static_cast<std::size_t>(kPanelRows * matrix.columns));
    decode_weight_panel(kernels.matmul, matrix, first_panel + item, values.data());
    for (int r = 0; r < kPanelRows; ++r) {
      const std::int64_t row = (first_panel + item) * kPanelRows + r;
      if (row >= first && row < last) body(row - first, values.data() + r * matrix.columns);
    }
  });
}

}  // namespace kvtide
