#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/codec.h"
#include "kernels/kernels.h"
#include "kernels/pack.h"
#include "tests/kernels/quant_memory.h"
#include "tests/kernels/same_bits.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::normals;
using testing::QuantMemory;
using testing::random_blocks;
using testing::same_bits;

// A weight matrix as the model floor lays it out: panels where the type has them, the file's rows otherwise.
struct Matrix {
  std::vector<std::byte> blocks, panels;
  WeightMatrix view;

  Matrix(DType dtype, std::int64_t rows, std::int64_t columns, std::uint64_t seed, float scale = 0.05f)
      : blocks(random_blocks(dtype, rows * columns, seed, scale)) {
    view = {.dtype = dtype, .rows = rows, .columns = columns, .blocks = blocks.data()};
    if (!panel_shape(dtype)) return;
    const std::int64_t count = (rows + kPanelRows - 1) / kPanelRows, bytes = panel_bytes(dtype, columns);
    panels.resize(static_cast<std::size_t>(count * bytes));
    for (std::int64_t p = 0; p < count; ++p) {
      const std::byte* sources[kPanelRows] = {};
      for (std::int64_t r = 0; r < kPanelRows && p * kPanelRows + r < rows; ++r)
        sources[r] = row(p * kPanelRows + r);
      pack_panel(dtype, sources, columns, panels.data() + p * bytes);
    }
    view.panels = panels.data();
    view.blocks = nullptr;
  }
  Matrix(const Matrix&) = delete;

  const std::byte* row(std::int64_t r) const {
    return blocks.data() + r * dtype_bytes(view.dtype, view.columns);
  }
  std::vector<float> decoded(std::int64_t r) const {
    std::vector<float> out(static_cast<std::size_t>(view.columns));
    decode_row(view.dtype, row(r), view.columns, out.data());
    return out;
  }
};

// Activations in f32 and, when asked for, quantised by hand with steps of a power of two: x = q * d exactly.
struct Inputs {
  std::vector<float> f32;
  std::vector<std::int8_t> q;
  QuantMemory<> quants;
  Activations view;

  Inputs(std::int64_t rows, std::int64_t k, std::uint64_t seed, bool quantised)
      : f32(normals(rows * k, seed)), quants(rows, k) {
    view = {rows, k, f32.data()};
    if (!quantised) return;
    const float step = 0x1p-5f;
    for (float& x : f32) {
      q.push_back(static_cast<std::int8_t>(std::lround(x / step)));
      x = static_cast<float>(q.back()) * step;
    }
    quantise();
  }
  // Row m of others alone.
  Inputs(const Inputs& all, std::int64_t m)
      : f32(all.f32.begin() + m * all.view.k, all.f32.begin() + (m + 1) * all.view.k), quants(1, all.view.k) {
    view = {1, all.view.k, f32.data()};
    if (all.q.empty()) return;
    q.assign(all.q.begin() + m * view.k, all.q.begin() + (m + 1) * view.k);
    quantise();
  }
  Inputs(const Inputs&) = delete;

 private:
  void quantise() {
    const std::vector<float> steps(q.size() / 32, 0x1p-5f);
    testing::lay_out(q.data(), steps.data(), quants.rows);
    view.quants = quants.rows;
  }
};

std::vector<float> product(const Kernels& kernels, int threads, const Inputs& x, const Matrix& w) {
  ThreadPool pool(threads);
  std::vector<float> y(static_cast<std::size_t>(x.view.rows * w.view.rows), -7.5f);
  const MatmulJob job{&w.view, y.data(), w.view.rows};
  matmul(pool, kernels.matmul, x.view, {&job, 1});
  return y;
}

// k steps, each rounding by at most 2^-24 of the magnitudes so far.
void expect_near_direct(const Inputs& x, const Matrix& w, std::span<const float> y, const char* isa) {
  for (std::int64_t n = 0; n < w.view.rows; ++n) {
    const auto weights = w.decoded(n);
    for (std::int64_t m = 0; m < x.view.rows; ++m) {
      double sum = 0.0, magnitude = 0.0;
      for (std::size_t k = 0; k < weights.size(); ++k) {
        const double term = static_cast<double>(weights[k]) * static_cast<double>(x.f32[m * x.view.k + k]);
        sum += term;
        magnitude += std::fabs(term);
      }
      ASSERT_NEAR(y[static_cast<std::size_t>(m * w.view.rows + n)], sum,
                  0x1p-24 * static_cast<double>(x.view.k + 4) * magnitude + 1e-30)
          << dtype_info(w.view.dtype).name << " " << isa << " row " << m << " column " << n;
    }
  }
}

TEST(Matmul, EqualsTheDirectProductForEveryType_InExactMode) {
  for (const auto& info : kDTypes) {
    const Matrix w(info.dtype, 37, 512, 3);
    const Inputs x(5, 512, 4, false);
    for (const Kernels* kernels : available_kernels())
      expect_near_direct(x, w, product(*kernels, 2, x, w), kernels->isa);
  }
}

TEST(Matmul, EqualsTheDirectProductForEveryType_OnQuantisedActivationsToo) {
  for (const auto& info : kDTypes) {
    const Matrix w(info.dtype, 37, 512, 5);
    const Inputs x(5, 512, 6, true);  // x is q * d exactly, so the same bound holds
    for (const Kernels* kernels : available_kernels())
      expect_near_direct(x, w, product(*kernels, 2, x, w), kernels->isa);
  }
}

TEST(Matmul, TakesRowsOfAnyLengthForTypesWithoutBlocks) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t k : {1, 2, 15, 17, 255, 257, 300}) {
      const Matrix w(dtype, 19, k, 7);
      const Inputs x(3, k, 8, false);
      for (const Kernels* kernels : available_kernels())
        expect_near_direct(x, w, product(*kernels, 1, x, w), kernels->isa);
    }
}

TEST(Matmul, GivesTheSameBitsForEveryTableAndThreadCount) {
  for (const auto& info : kDTypes)
    for (const bool quantised : {false, true}) {
      const Matrix w(info.dtype, 75, 256, 9);
      for (const std::int64_t rows : {1, 2, 16, 130}) {
        const Inputs x(rows, 256, 10, quantised);
        const auto wanted = product(kernels_by_name("scalar"), 1, x, w);
        for (const Kernels* kernels : available_kernels())
          for (const int threads : {1, 2, 3, 8})
            ASSERT_TRUE(same_bits(product(*kernels, threads, x, w), wanted))
                << info.name << " " << kernels->isa << " rows " << rows << " threads " << threads;
      }
    }
}

TEST(Matmul, GivesARowTheSameBitsWhateverTravelsWithIt) {
  for (const auto& info : kDTypes)
    for (const bool quantised : {false, true}) {
      const Matrix w(info.dtype, 24, 256, 11);
      const Inputs all(133, 256, 12, quantised);
      const auto together = product(best_kernels(), 2, all, w);
      for (const std::int64_t m : {0, 1, 127, 128, 132}) {  // both sides of a block of rows
        const Inputs one(all, m);
        ASSERT_TRUE(same_bits(product(best_kernels(), 1, one, w),
                              std::span(together).subspan(static_cast<std::size_t>(m * 24), 24)))
            << info.name << " row " << m;
      }
    }
}

TEST(Matmul, RunsSeveralJobsLikeEachAlone_AndLeavesTheGapsOfWiderOutputsAlone) {
  const Inputs x(20, 512, 13, true);
  const Matrix a(DType::q4_1, 64, 512, 14), b(DType::f16, 17, 512, 15), c(DType::q6_k, 1, 512, 16),
      d(DType::q8_0, 350, 512, 17);
  for (const Kernels* kernels : available_kernels())
    for (const int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads);
      std::vector<std::vector<float>> y;
      std::vector<MatmulJob> jobs;
      for (const Matrix* w : {&a, &b, &c, &d}) y.emplace_back(20 * (w->view.rows + 3), -7.5f);
      std::size_t i = 0;
      for (const Matrix* w : {&a, &b, &c, &d}) jobs.push_back({&w->view, y[i++].data(), w->view.rows + 3});
      matmul(pool, kernels->matmul, x.view, jobs);
      i = 0;
      for (const Matrix* w : {&a, &b, &c, &d}) {
        const auto alone = product(*kernels, 1, x, *w);
        const std::int64_t n = w->view.rows;
        for (std::int64_t m = 0; m < 20; ++m)
          for (std::int64_t col = 0; col < n + 3; ++col)
            ASSERT_EQ(y[i][static_cast<std::size_t>(m * (n + 3) + col)],
                      col < n ? alone[static_cast<std::size_t>(m * n + col)] : -7.5f)
                << dtype_info(w->view.dtype).name << " " << kernels->isa << " threads " << threads;
        ++i;
      }
    }
}

TEST(Matmul, ReadsTheFilesRowsInTheOrderGiven) {
  for (const DType dtype : {DType::q5_1, DType::iq4_nl, DType::q3_k}) {
    Matrix w(dtype, 21, 256, 18);
    const Inputs x(3, 256, 19, false);
    const auto plain = product(best_kernels(), 1, x, w);
    std::vector<std::int32_t> order;
    for (int i = 0; i < 21; ++i) order.push_back((i * 8 + 3) % 21);
    w.view.row_order = order.data();
    const auto sorted = product(best_kernels(), 2, x, w);
    for (std::size_t m = 0; m < 3; ++m)
      for (std::size_t n = 0; n < 21; ++n)
        EXPECT_EQ(sorted[m * 21 + n], plain[m * 21 + static_cast<std::size_t>(order[n])])
            << dtype_info(dtype).name;
  }
}

TEST(Matmul, ScalesOfRowsMultiplyTheProductsAndTheRows) {
  for (const DType dtype : {DType::q8_0, DType::f32, DType::f16}) {
    for (const bool quantised : {false, true}) {
      Matrix w(dtype, 21, 256, 41);
      const Inputs x(3, 256, 42, quantised);
      const auto plain = product(best_kernels(), 1, x, w);
      std::vector<float> row(256), scaled_row(256), scales;
      decode_weight_row(best_kernels().matmul, w.view, 20, row.data());
      for (int i = 0; i < 21; ++i) scales.push_back(0.5f * static_cast<float>(i + 1));
      w.view.row_scales = scales.data();
      const auto scaled = product(best_kernels(), 2, x, w);
      for (std::size_t m = 0; m < 3; ++m)
        for (std::size_t n = 0; n < 21; ++n) EXPECT_EQ(scaled[m * 21 + n], plain[m * 21 + n] * scales[n]);
      decode_weight_row(best_kernels().matmul, w.view, 20, scaled_row.data());
      for (std::size_t k = 0; k < 256; ++k) EXPECT_EQ(scaled_row[k], row[k] * 10.5f);
    }
  }
}

// 8-bit integers are stored as q8_0 blocks whose scale is 1: -128 is one of them.
TEST(Matmul, TheSmallestByteIsMultipliedLikeAnyOther) {
  Matrix w(DType::q8_0, 16, 64, 43);
  for (std::size_t block = 0; block < w.blocks.size(); block += 34) {
    const std::uint16_t one = 0x3c00;
    std::memcpy(&w.blocks[block], &one, sizeof one);
    for (std::size_t i = 0; i < 32; ++i) w.blocks[block + 2 + i] = std::byte{0x80};
  }
  const std::byte* sources[kPanelRows];
  for (std::int64_t r = 0; r < kPanelRows; ++r) sources[r] = w.row(r);
  pack_panel(DType::q8_0, sources, 64, w.panels.data());
  const Inputs x(2, 64, 44, true);
  for (const Kernels* kernels : available_kernels()) {
    const auto y = product(*kernels, 1, x, w);
    for (std::size_t m = 0; m < 2; ++m) {
      const float sum =
          std::accumulate(&x.f32[m * 64], &x.f32[m * 64] + 64, 0.0f);  // multiples of 1/32: exact
      for (std::size_t n = 0; n < 16; ++n) EXPECT_EQ(y[m * 16 + n], -128.0f * sum) << kernels->isa;
    }
  }
}

TEST(Matmul, OfNoRowsWritesNothing) {
  const Matrix w(DType::q8_0, 16, 32, 20);
  const Inputs x(0, 32, 21, false);
  std::vector<float> y(16, -7.5f);
  ThreadPool pool(2);
  const MatmulJob job{&w.view, y.data(), 16};
  matmul(pool, best_kernels().matmul, x.view, {&job, 1});
  EXPECT_EQ(y, std::vector<float>(16, -7.5f));
}

TEST(Matmul, LetsNanThroughInExactMode_AndOnlyIntoItsOwnRow) {
  const Matrix w(DType::q4_k, 16, 256, 22);
  Inputs x(3, 256, 23, false);
  x.f32[256 + 100] = std::nanf("");
  for (const Kernels* kernels : available_kernels()) {
    const auto y = product(*kernels, 1, x, w);
    for (std::size_t n = 0; n < 16; ++n) {
      EXPECT_TRUE(std::isfinite(y[n])) << kernels->isa;
      EXPECT_TRUE(std::isnan(y[16 + n])) << kernels->isa;
      EXPECT_TRUE(std::isfinite(y[32 + n])) << kernels->isa;
    }
  }
}

TEST(DecodeWeightRow, GivesTheBitsOfTheFilesRow_ForEveryTypeAndTable) {
  for (const auto& info : kDTypes) {
    const Matrix w(info.dtype, 35, 768, 24);
    for (const Kernels* kernels : available_kernels())
      for (const std::int64_t row : {0, 1, 15, 16, 34}) {
        std::vector<float> out(768);
        decode_weight_row(kernels->matmul, w.view, row, out.data());
        EXPECT_TRUE(same_bits(out, w.decoded(row))) << info.name << " " << kernels->isa << " row " << row;
      }
  }
}

}  // namespace
}  // namespace kvtide
