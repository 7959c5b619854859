#include "coreml/run/integer_panels.h"

#include <algorithm>

#include "tensor/panel.h"

namespace kvtide::coreml {
namespace integer_panels_details {

constexpr std::int64_t kPiece = 512;  // elements that are rounded at a time

void scale_bytes(const std::int8_t* from, const float* scales, std::int64_t inputs, float* out) {
  for (std::int64_t k = 0; k < inputs; ++k, from += kPanelRows, out += kPanelRows)
    for (int r = 0; r < kPanelRows; ++r) out[r] = static_cast<float>(from[r]) * scales[r];
}

void scale_nibbles(const std::int8_t* from, const float* scales, std::int64_t inputs, float* out) {
  for (std::int64_t k = 0; k < inputs; k += 2, from += kPanelRows, out += 2 * kPanelRows) {
    // Two's complement of four bits: shifted up, and down again with its sign.
    for (int r = 0; r < kPanelRows; ++r)
      out[r] = static_cast<float>(static_cast<std::int8_t>(from[r] * 16) >> 4) * scales[r];
    for (int r = 0; r < kPanelRows; ++r) out[kPanelRows + r] = static_cast<float>(from[r] >> 4) * scales[r];
  }
}

void round_halves(const Kernels& kernels, std::int64_t count, float* x) {
  std::uint16_t halves[kPiece];
  for (std::int64_t done = 0; done < count; done += kPiece) {
    const std::int64_t n = std::min(kPiece, count - done);  // a multiple of 16
    kernels.elementwise.to_f16(x + done, n, halves);
    kernels.dense.widen(halves, n, x + done);
  }
}

}  // namespace integer_panels_details

using namespace integer_panels_details;

std::unique_ptr<const IntegerPanels> IntegerPanels::of(Runtime& run, const Compressed& matrix,
                                                       std::int64_t outputs, std::int64_t inputs) {
  const auto found = matrix.scaled_integers();
  if (!found || found->run < 2 || inputs % 2 != 0 || found->run % 2 != 0 || inputs % found->run != 0)
    return nullptr;
  std::unique_ptr<IntegerPanels> made(new IntegerPanels);
  made->bits_ = found->bits;
  made->rounds_ = matrix.dtype() == DataType::fp16;
  made->inputs_ = inputs;
  made->run_ = found->run;
  made->panel_bytes_ = inputs * kPanelRows * found->bits / 8;
  const std::int64_t panels = (outputs + kPanelRows - 1) / kPanelRows;
  made->integers_ = Buffer(static_cast<std::size_t>(panels * made->panel_bytes_) + 64, Buffer::Pages::large);
  made->scales_.resize(static_cast<std::size_t>(panels * (inputs / found->run) * kPanelRows));
  run.threads.run(
      panels, [&](std::int64_t panel) { made->pack(run.kernels, matrix, *found->integers, outputs, panel); });
  return made;
}

void IntegerPanels::pack(const Kernels& kernels, const Compressed& matrix, const Compressed& integers,
                         std::int64_t outputs, std::int64_t panel) {
  auto* to = integers_.as<std::int8_t>() + panel * panel_bytes_;
  std::fill_n(to, panel_bytes_, std::int8_t{0});
  const std::int64_t blocks = inputs_ / run_;
  std::vector<float> row(static_cast<std::size_t>(inputs_));
  for (std::int64_t r = 0; r < std::min<std::int64_t>(kPanelRows, outputs - panel * kPanelRows); ++r) {
    const std::int64_t first = (panel * kPanelRows + r) * inputs_;
    integers.decode(kernels, first, inputs_, row.data());
    for (std::int64_t k = 0; k < inputs_; ++k) {
      const int integer = static_cast<int>(row[static_cast<std::size_t>(k)]);
      if (bits_ == 8)
        to[k * kPanelRows + r] = static_cast<std::int8_t>(integer);
      else
        to[k / 2 * kPanelRows + r] =
            static_cast<std::int8_t>(k % 2 == 0 ? integer & 15 : to[k / 2 * kPanelRows + r] | integer * 16);
    }
    for (std::int64_t block = 0; block < blocks; ++block)
      scales_[static_cast<std::size_t>((panel * blocks + block) * kPanelRows + r)] =
          matrix.scale_at(first + block * run_);
  }
}

void IntegerPanels::decode(const Kernels& kernels, std::int64_t panel, std::int64_t k0, std::int64_t k1,
                           float* out) const {
  const auto* from = integers_.as<std::int8_t>() + panel * panel_bytes_;
  const std::int64_t blocks = inputs_ / run_;
  for (std::int64_t k = k0; k < k1;) {
    const std::int64_t end = std::min(k1, (k / run_ + 1) * run_);
    const float* scales = scales_.data() + (panel * blocks + k / run_) * kPanelRows;
    float* to = out + (k - k0) * kPanelRows;
    if (bits_ == 8)
      scale_bytes(from + k * kPanelRows, scales, end - k, to);
    else
      scale_nibbles(from + k / 2 * kPanelRows, scales, end - k, to);
    k = end;
  }
  if (rounds_) round_halves(kernels, (k1 - k0) * kPanelRows, out);
}

std::int64_t IntegerPanels::bytes() const {
  return static_cast<std::int64_t>(integers_.size()) + static_cast<std::int64_t>(scales_.size()) * 4;
}

}  // namespace kvtide::coreml
