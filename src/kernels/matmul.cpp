#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>

#include "kernels/codec.h"
#include "kernels/pack.h"

namespace kvtide {
namespace {

constexpr std::int64_t kRowBlock = 128;  // rows of x per work item: their quants stay in a core's L2 cache
constexpr std::int64_t kSlice = 256;     // columns decoded at a time: one k-quant block, 16 KiB of f32
constexpr std::int64_t kFetching = 64;   // of them that are multiplied while a part of the next slice arrives
constexpr std::size_t kCacheLine = 64;

DotFn dot_of(const MatmulRow& kernels, DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return kernels.q4_0;
    case DType::q4_1:
      return kernels.q4_1;
    case DType::q5_0:
      return kernels.q5_0;
    case DType::q8_0:
      return kernels.q8_0;
    case DType::q4_k:
      return kernels.q4_k;
    case DType::q5_k:
      return kernels.q5_k;
    case DType::q6_k:
      return kernels.q6_k;
    default:
      return nullptr;
  }
}

DecodeFn decode_of(const MatmulRow& kernels, DType dtype) {
  switch (dtype) {
    case DType::f16:
      return kernels.decode_f16;
    case DType::bf16:
      return kernels.decode_bf16;
    case DType::q4_0:
      return kernels.decode_q4_0;
    case DType::q4_1:
      return kernels.decode_q4_1;
    case DType::q5_0:
      return kernels.decode_q5_0;
    case DType::q8_0:
      return kernels.decode_q8_0;
    case DType::q4_k:
      return kernels.decode_q4_k;
    case DType::q5_k:
      return kernels.decode_q5_k;
    case DType::q6_k:
      return kernels.decode_q6_k;
    default:
      return nullptr;
  }
}

// Columns [k0, k1) of file row `row` as f32. k0 is a multiple of every block size.
void decode_file_row(const WeightMatrix& w, std::int64_t row, std::int64_t k0, std::int64_t k1, float* out) {
  const std::int64_t source = w.row_order != nullptr ? w.row_order[row] : row;
  const std::byte* blocks = w.blocks + source * dtype_bytes(w.dtype, w.columns) + dtype_bytes(w.dtype, k0);
  decode_row(w.dtype, blocks, k1 - k0, out);
}

// Sixteen rows from `panel * 16` on, columns [k0, k1), as out[(k - k0) * 16 + row]; rows that do not exist
// are zeros.
void decode_slice(const MatmulRow& kernels, const WeightMatrix& w, std::int64_t panel, std::int64_t k0,
                  std::int64_t k1, float* out) {
  if (w.panels != nullptr)
    return decode_of(kernels, w.dtype)(w.panels + panel * panel_bytes(w.dtype, w.columns), k0, k1, out);
  float row_values[kSlice];
  for (int r = 0; r < kPanelRows; ++r) {
    const std::int64_t row = panel * kPanelRows + r;
    if (row < w.rows)
      decode_file_row(w, row, k0, k1, row_values);
    else
      std::memset(row_values, 0, sizeof row_values);
    for (std::int64_t k = 0; k < k1 - k0; ++k) out[k * kPanelRows + r] = row_values[k];
  }
}

// The same where they lie, if they lie so; otherwise decoded into `decoded` [kSlice * kPanelRows].
const float* panel_slice(const MatmulRow& kernels, const WeightMatrix& w, std::int64_t panel, std::int64_t k0,
                         std::int64_t k1, float* decoded) {
  if (w.panels != nullptr && w.dtype == DType::f32)
    return reinterpret_cast<const float*>(w.panels + panel * panel_bytes(w.dtype, w.columns)) +
           k0 * kPanelRows;
  decode_slice(kernels, w, panel, k0, k1, decoded);
  return decoded;
}

std::int64_t panels_of(const WeightMatrix& w) { return (w.rows + kPanelRows - 1) / kPanelRows; }

// What is decoded behind column k of a panel: columns of it, or of the next one.
std::span<const std::byte> slice_behind(const WeightMatrix& w, std::int64_t panel, std::int64_t k) {
  if (w.panels == nullptr) return {};
  const std::int64_t bytes = panel_bytes(w.dtype, w.columns);
  const std::int64_t first = panel * bytes + panel_bytes(w.dtype, k);
  const std::int64_t end = panels_of(w) * bytes;
  return {w.panels + first, static_cast<std::size_t>(std::min(panel_bytes(w.dtype, kSlice), end - first))};
}

void gemm_panel(const MatmulRow& kernels, const WeightMatrix& w, std::int64_t panel, const float* x,
                std::int64_t rows, const PanelOut& out) {
  alignas(64) float decoded[kSlice * kPanelRows];
  alignas(64) float acc[kRowBlock * kPanelRows];
  std::memset(acc, 0, static_cast<std::size_t>(rows * kPanelRows) * sizeof(float));
  for (std::int64_t k0 = 0; k0 < w.columns; k0 += kSlice) {
    const std::int64_t k1 = std::min(w.columns, k0 + kSlice);
    const float* slice = panel_slice(kernels, w, panel, k0, k1, decoded);
    gemm_fetching(kernels, slice, k1 - k0, x + k0, w.columns, rows, acc, slice_behind(w, panel, k1));
  }
  for (std::int64_t m = 0; m < rows; ++m)
    std::memcpy(out.y + m * out.stride, acc + m * kPanelRows,
                static_cast<std::size_t>(out.columns) * sizeof(float));
}

void run_panel(const MatmulRow& kernels, const Activations& x, const MatmulJob& job, std::int64_t panel,
               std::int64_t first, std::int64_t count) {
  const WeightMatrix& w = *job.weights;
  const std::int64_t left = w.rows - panel * kPanelRows;
  const PanelOut out{job.y + first * job.stride + panel * kPanelRows, job.stride,
                     static_cast<int>(std::min<std::int64_t>(left, kPanelRows))};
  if (takes_quants(w) && !x.quants.empty())
    dot_of(kernels, w.dtype)(w.panels + panel * panel_bytes(w.dtype, w.columns), x.quants.part(first, count),
                             out);
  else
    gemm_panel(kernels, w, panel, x.f32 + first * x.k, count, out);
  if (w.row_scales == nullptr) return;
  for (std::int64_t m = 0; m < count; ++m)
    for (int i = 0; i < out.columns; ++i) out.y[m * out.stride + i] *= w.row_scales[panel * kPanelRows + i];
}

}  // namespace

// Memory takes as long for a slice as the products of ten rows. In pieces, because a processor waits for few lines at once.
void gemm_fetching(const MatmulRow& kernels, const float* slice, std::int64_t k, const float* x,
                   std::int64_t x_stride, std::int64_t rows, float* acc, std::span<const std::byte> next) {
  const std::size_t share = next.size() * kFetching / static_cast<std::size_t>(k);
  for (std::int64_t i = 0; i < k; i += kFetching) {
    const auto part = next.first(std::min(share, next.size()));
    for (std::size_t at = 0; at < part.size(); at += kCacheLine) __builtin_prefetch(part.data() + at, 0, 2);
    next = next.subspan(part.size());
    kernels.gemm(slice + i * kPanelRows, std::min(kFetching, k - i), x + i, x_stride, rows, acc, kPanelRows);
  }
}

void matmul(ThreadPool& pool, const MatmulRow& kernels, const Activations& x,
            std::span<const MatmulJob> jobs) {
  std::int64_t panels = 0;
  for (const auto& job : jobs) panels += panels_of(*job.weights);
  const std::int64_t row_blocks = (x.rows + kRowBlock - 1) / kRowBlock;
  // A few items per thread even out threads of different speed; at most 16 panels keep an item short.
  const std::int64_t group = std::clamp<std::int64_t>(panels * row_blocks / (pool.threads() * 6), 1, 16);
  const std::int64_t groups = (panels + group - 1) / group;

  pool.run(groups * row_blocks, [&](std::int64_t item) {
    const std::int64_t first = item / groups * kRowBlock;
    const std::int64_t count = std::min(kRowBlock, x.rows - first);
    std::int64_t panel = item % groups * group;
    const std::int64_t end = std::min(panels, panel + group);
    std::int64_t skipped = 0;  // panels of the jobs before this one
    for (const auto& job : jobs) {
      const std::int64_t here = panels_of(*job.weights);
      for (; panel < end && panel < skipped + here; ++panel)
        run_panel(kernels, x, job, panel - skipped, first, count);
      skipped += here;
    }
  });
}

void decode_weight_panel(const MatmulRow& kernels, const WeightMatrix& w, std::int64_t panel, float* out) {
  alignas(64) float decoded[kSlice * kPanelRows];
  for (std::int64_t k0 = 0; k0 < w.columns; k0 += kSlice) {
    const std::int64_t k1 = std::min(w.columns, k0 + kSlice);
    const float* slice = panel_slice(kernels, w, panel, k0, k1, decoded);
    for (int r = 0; r < kPanelRows; ++r) {
      const std::int64_t row = panel * kPanelRows + r;
      const float scale = w.row_scales != nullptr && row < w.rows ? w.row_scales[row] : 1.0f;
      for (std::int64_t k = k0; k < k1; ++k)
        out[r * w.columns + k] = scale * slice[(k - k0) * kPanelRows + r];
    }
  }
}

void decode_weight_row(const MatmulRow& kernels, const WeightMatrix& weights, std::int64_t row, float* out) {
  if (weights.panels == nullptr) return decode_file_row(weights, row, 0, weights.columns, out);
  const float scale = weights.row_scales != nullptr ? weights.row_scales[row] : 1.0f;
  alignas(64) float decoded[kSlice * kPanelRows];
  for (std::int64_t k0 = 0; k0 < weights.columns; k0 += kSlice) {
    const std::int64_t k1 = std::min(weights.columns, k0 + kSlice);
    const float* slice = panel_slice(kernels, weights, row / kPanelRows, k0, k1, decoded);
    for (std::int64_t k = k0; k < k1; ++k) out[k] = scale * slice[(k - k0) * kPanelRows + row % kPanelRows];
  }
}

}  // namespace kvtide
