// The integer dot products of matmul_kernel.h: against direct arithmetic on the file's blocks, and table
// against table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/codec.h"
#include "kernels/kernels.h"
#include "kernels/pack.h"
#include "tests/kernels/quant_memory.h"
#include "tests/kernels/same_bits.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::random_blocks;
using testing::Rng;
using testing::same_bits;

constexpr DType kPanelTypes[] = {DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0,
                                 DType::q4_k, DType::q5_k, DType::q6_k};

DotFn dot_of(const MatmulRow& row, DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return row.q4_0;
    case DType::q4_1:
      return row.q4_1;
    case DType::q5_0:
      return row.q5_0;
    case DType::q8_0:
      return row.q8_0;
    case DType::q4_k:
      return row.q4_k;
    case DType::q5_k:
      return row.q5_k;
    default:
      return row.q6_k;
  }
}

// Quantised activations in natural order, made without the kernel that makes them in a model.
struct Quants {
  std::int64_t rows, k;
  std::vector<std::int8_t> q;
  std::vector<float> d;

  Quants(std::int64_t rows_, std::int64_t k_, std::uint64_t seed, float scale)
      : rows(rows_), k(k_), q(static_cast<std::size_t>(rows * k)) {
    Rng rng(seed);
    for (auto& value : q) value = static_cast<std::int8_t>(rng.below(255) - 127);
    for (std::int64_t i = 0; i < rows * k / 32; ++i) d.push_back(rng.real(0.5f, 1.0f) * scale);
  }
  std::int64_t blocks() const { return k / 32; }
  Quants row(std::int64_t m) const {
    Quants one = *this;
    one.rows = 1;
    one.q.assign(q.begin() + m * k, q.begin() + (m + 1) * k);
    one.d.assign(d.begin() + m * blocks(), d.begin() + (m + 1) * blocks());
    return one;
  }
};

std::vector<std::byte> panel_of(DType dtype, const std::vector<std::byte>& blocks, std::int64_t k,
                                int rows = 16) {
  const std::byte* sources[kPanelRows] = {};
  for (int r = 0; r < rows; ++r) sources[r] = blocks.data() + r * dtype_bytes(dtype, k);
  std::vector<std::byte> panel(static_cast<std::size_t>(panel_bytes(dtype, k)));
  pack_panel(dtype, sources, k, panel.data());
  return panel;
}

std::vector<float> run(const MatmulRow& row, DType dtype, const std::vector<std::byte>& panel,
                       const Quants& x, int columns = kPanelRows) {
  std::vector<float> y(static_cast<std::size_t>(x.rows * columns));
  testing::QuantMemory<> memory(x.rows, x.k);
  testing::lay_out(x.q.data(), x.d.data(), memory.rows);
  dot_of(row, dtype)(panel.data(), memory.rows, {y.data(), columns, columns});
  return y;
}

// Every f32 step of the kernel rounds by at most 2^-24 of the sum of the magnitudes so far. There are at most
// two steps for every 32 k, each with one rounded factor; a block's terms are bounded by twice its largest
// weight.
void expect_near_direct(DType dtype, const std::vector<std::byte>& blocks, const Quants& x,
                        std::span<const float> y, const char* isa) {
  std::vector<float> w(static_cast<std::size_t>(x.k));
  for (int r = 0; r < kPanelRows; ++r) {
    decode_row(dtype, blocks.data() + r * dtype_bytes(dtype, x.k), x.k, w.data());
    for (std::int64_t m = 0; m < x.rows; ++m) {
      double sum = 0.0, magnitude = 0.0;
      for (std::int64_t b = 0; b < x.k / 32; ++b) {
        double largest = 0.0, block_x = 0.0;
        for (std::int64_t i = b * 32; i < b * 32 + 32; ++i) {
          const double xi = static_cast<double>(x.d[static_cast<std::size_t>(m * x.blocks() + b)]) *
                            x.q[static_cast<std::size_t>(m * x.k + i)];
          sum += static_cast<double>(w[static_cast<std::size_t>(i)]) * xi;
          largest = std::max(largest, std::fabs(static_cast<double>(w[static_cast<std::size_t>(i)])));
          block_x += std::fabs(xi);
        }
        magnitude += 2.0 * largest * block_x;
      }
      const double steps = 2.0 * static_cast<double>(x.k / 32) + 4.0;
      ASSERT_NEAR(y[static_cast<std::size_t>(m * kPanelRows + r)], sum, 0x1p-24 * steps * magnitude + 1e-30)
          << dtype_info(dtype).name << " " << isa << " row " << m << " column " << r;
    }
  }
}

TEST(MatmulDot, EqualsDirectArithmeticOnTheFilesBlocks) {
  for (const DType dtype : kPanelTypes)
    for (const std::int64_t k : {std::int64_t{256}, std::int64_t{1024}}) {
      const auto blocks = random_blocks(dtype, k * 16, static_cast<std::uint64_t>(k), 0.03f);
      const auto panel = panel_of(dtype, blocks, k);
      const Quants x(21, k, 77, 0.02f);
      for (const Kernels* kernels : available_kernels())
        expect_near_direct(dtype, blocks, x, run(kernels->matmul, dtype, panel, x), kernels->isa);
    }
}

TEST(MatmulDot, EqualsDirectArithmeticWithTheLargestQuantsAndScales) {
  const std::int64_t k = 512;
  for (const DType dtype : kPanelTypes)
    for (const int byte : {0x00, 0x7f, 0x80, 0xff}) {
      // 0x80: q8_0 quants and q6_k scales of -128; 0xff: the largest nibbles and six-bit scales.
      std::vector<std::byte> blocks(static_cast<std::size_t>(dtype_bytes(dtype, k * 16)),
                                    static_cast<std::byte>(byte));
      const auto block = static_cast<std::size_t>(dtype_info(dtype).block_bytes);
      for (std::size_t at = 0; at < blocks.size(); at += block)
        for (const std::size_t offset : testing::scale_offsets(dtype)) {
          const std::uint16_t scale = at % (2 * block) == 0 ? 0x7bff : 0xfbff;  // +-65504
          std::memcpy(blocks.data() + at + offset, &scale, 2);
        }
      Quants x(18, k, 1, 1e-3f);
      for (std::int64_t m = 0; m < x.rows; m += 3)
        for (std::int64_t i = 0; i < k; ++i) {
          x.q[static_cast<std::size_t>(m * k + i)] = 127;
          x.q[static_cast<std::size_t>((m + 1) * k + i)] = -127;
          x.q[static_cast<std::size_t>((m + 2) * k + i)] = i % 2 == 0 ? 127 : -127;
        }
      const auto panel = panel_of(dtype, blocks, k);
      for (const Kernels* kernels : available_kernels())
        expect_near_direct(dtype, blocks, x, run(kernels->matmul, dtype, panel, x), kernels->isa);
    }
}

TEST(MatmulDot, GivesTheSameBitsOnEveryTable_ForAnyNumberOfRows) {
  const std::int64_t k = 768;
  for (const DType dtype : kPanelTypes) {
    const auto panel = panel_of(dtype, random_blocks(dtype, k * 16, 21, 0.05f), k);
    std::vector<std::int64_t> counts = {32, 35, 130, 272};
    for (std::int64_t m = 1; m <= 17; ++m) counts.push_back(m);
    for (const std::int64_t m : counts) {
      const Quants x(m, k, static_cast<std::uint64_t>(m), 0.1f);
      const auto wanted = run(kMatmulScalar, dtype, panel, x);
      for (const Kernels* kernels : available_kernels())
        ASSERT_TRUE(same_bits(run(kernels->matmul, dtype, panel, x), wanted))
            << dtype_info(dtype).name << " " << kernels->isa << " m " << m;
    }
  }
}

TEST(MatmulDot, GivesTheSameBitsOnEveryTable_ForAnyWidth) {
  for (const DType dtype : kPanelTypes)
    for (const std::int64_t blocks : {1, 2, 3, 5, 15, 16, 17, 33}) {
      const std::int64_t k = blocks * dtype_info(dtype).block_elements;
      const auto panel = panel_of(dtype, random_blocks(dtype, k * 16, 25, 0.05f), k);
      const Quants x(18, k, 11, 0.1f);
      const auto wanted = run(kMatmulScalar, dtype, panel, x);
      for (const Kernels* kernels : available_kernels())
        ASSERT_TRUE(same_bits(run(kernels->matmul, dtype, panel, x), wanted))
            << dtype_info(dtype).name << " " << kernels->isa << " k " << k;
    }
}

TEST(MatmulDot, GivesTheSameBitsOnEveryTable_WithNanInfinityAndOverflow) {
  const std::int64_t k = 256;
  for (const DType dtype : kPanelTypes) {
    const auto panel = panel_of(dtype, random_blocks(dtype, k * 16, 22, 6e4f), k);
    Quants x(22, k, 5, 1.0f);
    x.d[0] = std::nanf("");
    const std::int64_t blocks = x.blocks();
    x.d[static_cast<std::size_t>(2 * blocks - 1)] = INFINITY;
    for (std::int64_t b = 0; b < blocks; ++b) x.d[static_cast<std::size_t>(2 * blocks + b)] = 3e38f;
    for (std::int64_t b = 0; b < blocks; ++b) x.d[static_cast<std::size_t>(3 * blocks + b)] = 1e-44f;
    const auto wanted = run(kMatmulScalar, dtype, panel, x);
    EXPECT_TRUE(std::isnan(wanted[0])) << dtype_info(dtype).name << " lost a NaN";
    EXPECT_FALSE(std::isfinite(wanted[kPanelRows])) << dtype_info(dtype).name << " lost an infinity";
    for (const Kernels* kernels : available_kernels())
      EXPECT_TRUE(same_bits(run(kernels->matmul, dtype, panel, x), wanted))
          << dtype_info(dtype).name << " " << kernels->isa;
  }
}

TEST(MatmulDot, GivesARowTheSameBitsWhateverTravelsWithIt) {
  const std::int64_t k = 512;
  for (const DType dtype : kPanelTypes) {
    const auto panel = panel_of(dtype, random_blocks(dtype, k * 16, 23, 0.05f), k);
    const Quants x(39, k, 9, 0.1f);
    for (const Kernels* kernels : available_kernels()) {
      const auto together = run(kernels->matmul, dtype, panel, x);
      for (std::int64_t m = 0; m < x.rows; ++m)
        ASSERT_TRUE(
            same_bits(run(kernels->matmul, dtype, panel, x.row(m)),
                      std::span(together).subspan(static_cast<std::size_t>(m * kPanelRows), kPanelRows)))
            << dtype_info(dtype).name << " " << kernels->isa << " row " << m;
    }
  }
}

TEST(MatmulDot, WritesOnlyItsColumns) {
  const std::int64_t k = 256, rows = 23, stride = 20;
  for (const DType dtype : kPanelTypes)
    for (const int columns : {1, 2, 5, 8, 11, 15, 16}) {
      const auto blocks = random_blocks(dtype, k * 16, 24, 0.05f);
      const auto panel = panel_of(dtype, blocks, k, columns);
      const Quants x(rows, k, 10, 0.1f);
      const auto wanted = run(kMatmulScalar, dtype, panel_of(dtype, blocks, k), x);
      for (const Kernels* kernels : available_kernels()) {
        std::vector<float> y(static_cast<std::size_t>(rows * stride), -7.5f);
        testing::QuantMemory<> memory(x.rows, x.k);
        testing::lay_out(x.q.data(), x.d.data(), memory.rows);
        dot_of(kernels->matmul, dtype)(panel.data(), memory.rows, {y.data(), stride, columns});
        for (std::int64_t m = 0; m < rows; ++m)
          for (std::int64_t c = 0; c < stride; ++c)
            ASSERT_EQ(y[static_cast<std::size_t>(m * stride + c)],
                      c < columns ? wanted[static_cast<std::size_t>(m * kPanelRows + c)] : -7.5f)
                << dtype_info(dtype).name << " " << kernels->isa << " columns " << columns << " at " << m
                << ", " << c;
      }
    }
}

}  // namespace
}  // namespace kvtide
