#include "coreml/run/weight.h"

#include <algorithm>
#include <cstring>

#include "coreml/run/convert.h"
#include "kernels/matmul.h"
#include "tensor/panel.h"

namespace kvtide::coreml {
namespace {

constexpr std::int64_t kTileInputs = 256;  // decoded at a time: 16 KiB of f32
constexpr std::int64_t kTileRows = 128;    // rows of activations that meet a panel at a time

template <class Element>
void pack_one_panel(const Element* from, std::int64_t outputs, std::int64_t inputs, WeightOrder order,
                    std::int64_t panel, Element* to) {
  const std::int64_t first = panel * kPanelRows;
  const std::int64_t count = std::min<std::int64_t>(kPanelRows, outputs - first);
  if (order == WeightOrder::inputs_first) {
    for (std::int64_t k = 0; k < inputs; ++k)
      std::memcpy(to + k * kPanelRows, from + k * outputs + first,
                  static_cast<std::size_t>(count) * sizeof(Element));
    return;
  }
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t k = 0; k < inputs; ++k) to[k * kPanelRows + r] = from[(first + r) * inputs + k];
}

void decode_tile(const Kernels& kernels, const Compressed& packed, std::int64_t outputs, std::int64_t inputs,
                 WeightOrder order, std::int64_t panel, std::int64_t k0, std::int64_t k1, float* to) {
  const std::int64_t first = panel * kPanelRows;
  const std::int64_t count = std::min<std::int64_t>(kPanelRows, outputs - first);
  if (count < kPanelRows)
    std::memset(to, 0, static_cast<std::size_t>((k1 - k0) * kPanelRows) * sizeof(float));
  if (order == WeightOrder::inputs_first) {
    for (std::int64_t k = k0; k < k1; ++k)
      packed.decode(kernels, k * outputs + first, count, to + (k - k0) * kPanelRows);
    return;
  }
  float row[kTileInputs];
  for (std::int64_t r = 0; r < count; ++r) {
    packed.decode(kernels, (first + r) * inputs + k0, k1 - k0, row);
    for (std::int64_t k = 0; k < k1 - k0; ++k) to[k * kPanelRows + r] = row[k];
  }
}

void multiply_panel(const Kernels& kernels, const Weight& weight, std::int64_t panel, const float* x,
                    std::int64_t first_row, std::int64_t rows, const TakeSums& take) {
  alignas(64) float decoded[kTileInputs * kPanelRows];
  alignas(64) float sums[kTileRows * kPanelRows];
  std::memset(sums, 0, static_cast<std::size_t>(rows * kPanelRows) * sizeof(float));
  for (std::int64_t k0 = 0; k0 < weight.inputs(); k0 += kTileInputs) {
    const std::int64_t k1 = std::min(weight.inputs(), k0 + kTileInputs);
    const float* tile = weight.slice(kernels, panel, k0, k1, decoded);
    gemm_fetching(kernels.matmul, tile, k1 - k0, x + first_row * weight.inputs() + k0, weight.inputs(), rows,
                  sums, weight.stored_behind(panel, k1, kTileInputs));
  }
  const auto count =
      static_cast<int>(std::min<std::int64_t>(kPanelRows, weight.outputs() - panel * kPanelRows));
  for (std::int64_t row = 0; row < rows; ++row)
    take(first_row + row, panel * kPanelRows, sums + row * kPanelRows, count);
}

}  // namespace

Weight::Weight(Runtime& run, const Tensor& dense, std::int64_t outputs, std::int64_t inputs,
               WeightOrder order)
    : outputs_(outputs), inputs_(inputs), order_(order), dtype_(dense.dtype) {
  const std::int64_t panels = (outputs + kPanelRows - 1) / kPanelRows;
  const std::int64_t panel_elements = inputs * kPanelRows;
  panels_ = Buffer(static_cast<std::size_t>(panels * panel_elements) * element_bytes(dtype_) + 64,
                   Buffer::Pages::large);
  run.threads.run(panels, [&](std::int64_t panel) {
    if (dtype_ == DataType::fp16)
      pack_one_panel(dense.as<const std::uint16_t>(), outputs, inputs, order, panel,
                     panels_.as<std::uint16_t>() + panel * panel_elements);
    else
      pack_one_panel(dense.as<const float>(), outputs, inputs, order, panel,
                     panels_.as<float>() + panel * panel_elements);
  });
}

Weight::Weight(Runtime& run, CompressedPtr packed, std::int64_t outputs, std::int64_t inputs,
               WeightOrder order)
    : outputs_(outputs), inputs_(inputs), order_(order), packed_(std::move(packed)) {
  if (order == WeightOrder::outputs_first) integers_ = IntegerPanels::of(run, *packed_, outputs, inputs);
  if (integers_) packed_->scaled_integers()->integers->release_pages();
}

std::int64_t Weight::bytes() const {
  if (integers_) return integers_->bytes();
  return packed_ ? packed_->bytes() : static_cast<std::int64_t>(panels_.size());
}

const float* Weight::slice(const Kernels& kernels, std::int64_t panel, std::int64_t k0, std::int64_t k1,
                           float* decoded) const {
  if (integers_) {
    integers_->decode(kernels, panel, k0, k1, decoded);
    return decoded;
  }
  if (packed_) {
    decode_tile(kernels, *packed_, outputs_, inputs_, order_, panel, k0, k1, decoded);
    return decoded;
  }
  const std::int64_t start = panel * inputs_ * kPanelRows;
  if (dtype_ == DataType::fp32) return panels_.as<float>() + start + k0 * kPanelRows;
  kernels.matmul.decode_f16(panels_.data() + start * 2, k0, k1, decoded);
  return decoded;
}

std::span<const std::byte> Weight::stored_behind(std::int64_t panel, std::int64_t k,
                                                 std::int64_t inputs) const {
  if (panels_.size() == 0) return {};
  const std::size_t column = kPanelRows * element_bytes(dtype_);
  const std::size_t first = static_cast<std::size_t>(panel * inputs_ + k) * column;
  return {panels_.data() + first,
          std::min(panels_.size() - first, static_cast<std::size_t>(inputs) * column)};
}

void Weight::row(const Kernels& kernels, std::int64_t output, float* out) const {
  alignas(64) float decoded[kTileInputs * kPanelRows];
  for (std::int64_t k0 = 0; k0 < inputs_; k0 += kTileInputs) {
    const std::int64_t k1 = std::min(inputs_, k0 + kTileInputs);
    const float* tile = slice(kernels, output / kPanelRows, k0, k1, decoded);
    for (std::int64_t k = k0; k < k1; ++k) out[k] = tile[(k - k0) * kPanelRows + output % kPanelRows];
  }
}

void multiply(Runtime& run, const Weight& weight, const float* x, std::int64_t rows, TakeSums take) {
  const std::int64_t panels = (weight.outputs() + kPanelRows - 1) / kPanelRows;
  const std::int64_t row_blocks = (rows + kTileRows - 1) / kTileRows;
  // A few items for each thread even out threads of different speed.
  const std::int64_t group =
      std::clamp<std::int64_t>(panels * row_blocks / (run.threads.threads() * 6), 1, 16);
  const std::int64_t groups = (panels + group - 1) / group;
  run.threads.run(groups * row_blocks, [&](std::int64_t item) {
    const std::int64_t first = item / groups * kTileRows;
    const std::int64_t last_panel = std::min(panels, (item % groups + 1) * group);
    for (std::int64_t panel = item % groups * group; panel < last_panel; ++panel)
      multiply_panel(run.kernels, weight, panel, x, first, std::min(kTileRows, rows - first), take);
  });
}

}  // namespace kvtide::coreml
