// matmul_view.inl: quantised activations as the tuned matrix products walk them. Included by matmul.avx2.cpp and
// matmul.avx512.cpp before their block steps.
#include "kernels/matmul_kernel.h"

namespace kvtide {
namespace {

// Rows from `row` on; m counts from there, b counts blocks of 32 elements.
struct XView {
  const std::int8_t* q;
  const float* d;
  const float* d_sum;
  const std::int32_t* sum16;
  std::int64_t k, blocks;

  XView(const QuantRows& rows, std::int64_t row)
      : q(rows.q + row * rows.k),
        d(rows.d + row * (rows.k / 32)),
        d_sum(rows.d_sum + row * (rows.k / 32)),
        sum16(rows.sum16 + row * (rows.k / 16)),
        k(rows.k),
        blocks(rows.k / 32) {}

  const std::int8_t* quants(int m, std::int64_t b) const { return q + m * k + b * 32; }
  float step(int m, std::int64_t b) const { return d[m * blocks + b]; }
  float mass(int m, std::int64_t b) const { return d_sum[m * blocks + b]; }
  int sum(int m, std::int64_t b, int half) const { return sum16[(m * blocks + b) * 2 + half]; }
  int sum(int m, std::int64_t b) const { return sum(m, b, 0) + sum(m, b, 1); }
};

template <int... kRows>
struct RowCounts {};

}  // namespace
}  // namespace kvtide
