// matmul.h: one or several matrix products of the same activations, spread over the threads.
//
// y[m][n] = sum over k of x[m][k] * w[n][k]. How the work is cut never changes a bit: an output is one
// accumulator from k = 0 to the end (matmul_kernel.h). Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/matmul_kernel.h"
#include "tensor/dtype.h"

namespace kvtide {

// A weight matrix [rows][columns], not owning. Either panels (pack.h) or the file's own rows, which are
// decoded by tile.
struct WeightMatrix {
  DType dtype = DType::f32;
  std::int64_t rows = 0;     // n
  std::int64_t columns = 0;  // k
  const std::byte* panels = nullptr;
  const std::byte* blocks = nullptr;        // when there are no panels: rows of blocks as in the file
  const std::int32_t* row_order = nullptr;  // row i is row row_order[i] of `blocks`; nullptr: as they are
  const float* row_scales = nullptr;        // [rows]: row i stands for so many times itself; nullptr: once
};

// Whether these weights are multiplied with 8-bit activations.
inline bool takes_quants(const WeightMatrix& w) { return w.panels != nullptr && has_integer_panel(w.dtype); }

struct Activations {
  std::int64_t rows = 0;  // m
  std::int64_t k = 0;
  const float* f32 = nullptr;  // [rows][k]
  QuantRows quants = {};       // empty: exact, f32 throughout
  bool exact = false;          // quants must stay empty, whatever the weights would take
};

struct MatmulJob {
  const WeightMatrix* weights;
  float* y;             // [rows of x][stride]
  std::int64_t stride;  // >= weights->rows
};

void matmul(ThreadPool& pool, const MatmulRow& kernels, const Activations& x,
            std::span<const MatmulJob> jobs);

// The kernel's gemm with one slice of weights, while the bytes of the next one come into the cache. x: rows of x_stride;
// acc: [rows][16]. The same bits as gemm.
void gemm_fetching(const MatmulRow& kernels, const float* slice, std::int64_t k, const float* x,
                   std::int64_t x_stride, std::int64_t rows, float* acc, std::span<const std::byte> next);

// The rows 16 panel .. of a weight matrix as f32 [16][columns]; those that do not exist are zeros.
void decode_weight_panel(const MatmulRow& kernels, const WeightMatrix& weights, std::int64_t panel,
                         float* out);

// One row of a weight matrix as f32 [columns]: an embedding.
void decode_weight_row(const MatmulRow& kernels, const WeightMatrix& weights, std::int64_t row, float* out);

}  // namespace kvtide
