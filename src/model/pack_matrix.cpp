#include "model/pack_matrix.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/text.h"
#include "kernels/codec.h"
#include "kernels/pack.h"
#include "kvtide/error.h"
#include "tensor/panel.h"

namespace kvtide {
namespace {

constexpr std::int64_t kSliceBytes = std::int64_t{2} << 20;  // of the checkpoint, packed between two releases

std::int64_t panels_of(std::int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

}  // namespace

std::int64_t packed_bytes(DType dtype, std::int64_t rows, std::int64_t columns) {
  return panel_shape(dtype) ? panels_of(rows) * panel_bytes(dtype, columns) : 0;
}

void MatrixPacker::refuse_numbers(const StoredTensor& tensor) const {
  throw Error(ErrorCode::numeric, cat(checkpoint_.path(), ": tensor '", tensor.name,
                                      "' holds NaN or infinity; weights must be finite numbers"));
}

// Slice by slice, letting go of the file's pages behind: the peak is one copy of the weights and one slice.
const std::byte* MatrixPacker::pack(const StoredTensor& tensor, const StoredRows& source,
                                    const PackedMatrix& wanted) {
  const std::int64_t rows = wanted.rows, columns = wanted.columns, panels = panels_of(rows);
  const std::int64_t panel_size = wanted.bytes > 0 ? panel_bytes(wanted.dtype, columns) : 0;
  std::atomic<bool> finite{true};
  const auto pack_one = [&](std::int64_t panel, std::byte* target) {
    const std::byte* pointers[kPanelRows] = {};
    std::vector<std::byte> scratch;
    source.gather(panel * kPanelRows, std::min<std::int64_t>(kPanelRows, rows - panel * kPanelRows), pointers,
                  scratch);
    for (const std::byte* row : pointers)
      if (row != nullptr && !scales_finite(wanted.dtype, row, columns))
        finite.store(false, std::memory_order_relaxed);
    if (panel_size > 0) pack_panel(wanted.dtype, pointers, columns, target);
  };
  place_.begin(wanted);
  const std::int64_t row_bytes = source.row_bytes();
  const std::int64_t slice = std::max<std::int64_t>(1, kSliceBytes / (row_bytes * kPanelRows));
  for (std::int64_t begin = 0; begin < panels; begin += slice) {
    const std::int64_t count = std::min(slice, panels - begin);
    std::byte* room = panel_size > 0 ? place_.room(static_cast<std::size_t>(count * panel_size)) : nullptr;
    // High indices are run first: what is left to do of the slice before goes along with the packing of this one.
    pool_.run(count + 1, [&](std::int64_t i) {
      i == count ? place_.meanwhile() : pack_one(begin + i, room + i * panel_size);
    });
    if (!tensor.rule.transposed)
      release(tensor, (wanted.first + begin * kPanelRows) * row_bytes,
              std::min(count * kPanelRows, rows - begin * kPanelRows) * row_bytes);
  }
  if (tensor.rule.transposed) checkpoint_.release(tensor, 0, tensor.bytes.size());
  if (!finite.load()) refuse_numbers(tensor);
  return place_.end();
}

void MatrixPacker::release(const StoredTensor& tensor, std::int64_t offset,
                           std::int64_t size) const noexcept {
  checkpoint_.release(tensor, static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
}

}  // namespace kvtide
