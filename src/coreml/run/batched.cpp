#include "coreml/run/batched.h"

#include <cstring>
#include <memory>

#include "coreml/run/convert.h"

namespace kvtide::coreml {
namespace {

constexpr std::int64_t kBatchColumns = 256;  // of b that one thread takes
constexpr std::int64_t kBatchRows = 64;      // of a

std::unique_ptr<float[]> floats_for(std::int64_t n) {
  return std::unique_ptr<float[]>(new float[static_cast<std::size_t>(n)]);
}

struct Product {
  const Kernels& kernels;
  const Tensor& a;
  const Tensor& b;
  std::int64_t m, n, k;
  bool transposed;
  const Tensor& out;
};

// Rows [m0, m1) and columns [n0, n1) of one batch.
void multiply_block(const Product& p, const BatchPair& at, std::int64_t out_first, std::int64_t m0,
                    std::int64_t m1, std::int64_t n0, std::int64_t n1) {
  const std::int64_t rows = m1 - m0, columns = n1 - n0, wide = to_sixteen(columns);
  const auto sums = floats_for(rows * wide);
  if (p.transposed) {
    const std::int64_t deep = to_sixteen(p.k);
    const auto a = floats_for(rows * deep), b = floats_for(wide * deep);
    load_rows(p.kernels, p.a, at.a + m0 * p.k, rows, p.k, p.k, deep, a.get());
    load_rows(p.kernels, p.b, at.b + n0 * p.k, columns, p.k, p.k, deep, b.get());
    std::memset(b.get() + columns * deep, 0,
                static_cast<std::size_t>((wide - columns) * deep) * sizeof(float));
    p.kernels.dense.dots(a.get(), rows, b.get(), wide, deep, 1.0f, sums.get());
  } else {
    const auto a = floats_for(rows * p.k), b = floats_for(p.k * wide);
    load_rows(p.kernels, p.a, at.a + m0 * p.k, rows, p.k, p.k, p.k, a.get());
    load_rows(p.kernels, p.b, at.b + n0, p.k, p.n, columns, wide, b.get());
    p.kernels.dense.mix(a.get(), rows, p.k, b.get(), wide, sums.get());
  }
  for (std::int64_t i = 0; i < rows; ++i)
    store(p.kernels, sums.get() + i * wide, columns, p.out, out_first + (m0 + i) * p.n + n0);
}

}  // namespace

void load_rows(const Kernels& kernels, const Tensor& from, std::int64_t first, std::int64_t rows,
               std::int64_t step, std::int64_t width, std::int64_t padded, float* to) {
  if (step == width && width == padded) return load(kernels, from, first, rows * width, to);
  for (std::int64_t i = 0; i < rows; ++i, to += padded) {
    load(kernels, from, first + i * step, width, to);
    for (std::int64_t j = width; j < padded; ++j) to[j] = 0.0f;
  }
}

void multiply_batches(Runtime& run, const Tensor& a, const Tensor& b, const std::vector<BatchPair>& batches,
                      std::int64_t m, std::int64_t n, std::int64_t k, bool transposed, const Tensor& out) {
  const Product product{run.kernels, a, b, m, n, k, transposed, out};
  const std::int64_t row_blocks = (m + kBatchRows - 1) / kBatchRows,
                     column_blocks = (n + kBatchColumns - 1) / kBatchColumns;
  const std::int64_t blocks = row_blocks * column_blocks;
  run.threads.run(static_cast<std::int64_t>(batches.size()) * blocks, [&](std::int64_t i) {
    const std::int64_t batch = i / blocks, m0 = i % blocks / column_blocks * kBatchRows,
                       n0 = i % column_blocks * kBatchColumns;
    multiply_block(product, batches[static_cast<std::size_t>(batch)], batch * m * n, m0,
                   std::min(m, m0 + kBatchRows), n0, std::min(n, n0 + kBatchColumns));
  });
}

}  // namespace kvtide::coreml
