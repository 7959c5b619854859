// batched.h: products of tensors that are both known only when a program runs: scores, mixes of values.
//
// An output is one sum in a fixed order, whatever the number of rows, batches or threads.
#pragma once

#include <cstdint>
#include <vector>

#include "coreml/run/runtime.h"

namespace kvtide::coreml {

// a [m][k] and b of one batch, as elements of the two tensors from here on.
struct BatchPair {
  std::int64_t a = 0, b = 0;
};

// out[batch][m][n] = a [m][k] times b, which lies as [k][n], or as [n][k] when `transposed`. `out` has room for all, of any float
// type.
void multiply_batches(Runtime& run, const Tensor& a, const Tensor& b, const std::vector<BatchPair>& batches,
                      std::int64_t m, std::int64_t n, std::int64_t k, bool transposed, const Tensor& out);

// Rows of `from` as f32, padded with zeros to `padded` elements: from element `first` on, rows `step` apart.
void load_rows(const Kernels& kernels, const Tensor& from, std::int64_t first, std::int64_t rows,
               std::int64_t step, std::int64_t width, std::int64_t padded, float* to);

inline std::int64_t to_sixteen(std::int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace kvtide::coreml
