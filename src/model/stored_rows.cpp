#include "model/stored_rows.h"

#include <cstring>

#include "base/half.h"
#include "tensor/blocks.h"

namespace kvtide {

StoredRows::StoredRows(const StoredTensor& tensor, std::int64_t first, std::int64_t rows,
                       std::int64_t columns, const std::vector<std::int32_t>* order)
    : tensor_(tensor),
      order_(order),
      dtype_(tensor.dtype),
      int8_(!tensor.scales.empty()),
      in_place_(!int8_ && !tensor.rule.transposed),
      first_(first),
      columns_(columns),
      stride_(rows) {
  if (tensor.rule.transposed) stride_ = tensor.shape.back();
  if (int8_) {
    // Rows that are no whole blocks are widened; the integers are exact in f32.
    dtype_ = columns % 32 == 0 ? DType::q8_0 : DType::f32;
    element_ = row_bytes_ = 1;
    row_bytes_ = columns;
  } else {
    element_ = dtype_info(dtype_).block_bytes;
    row_bytes_ = dtype_bytes(dtype_, columns);
  }
  gathered_bytes_ = dtype_bytes(dtype_, columns);
}

void StoredRows::fill(std::int64_t row, std::byte* out) const {
  const std::byte* bytes = tensor_.bytes.data();
  const auto at = [&](std::int64_t k) {
    return bytes + (tensor_.rule.transposed ? k * stride_ + row : row * columns_ + k) * element_;
  };
  if (!int8_) {
    for (std::int64_t k = 0; k < columns_; ++k)
      std::memcpy(out + k * element_, at(k), static_cast<std::size_t>(element_));
    return;
  }
  if (dtype_ == DType::f32) {
    for (std::int64_t k = 0; k < columns_; ++k) {
      const auto value = static_cast<float>(static_cast<std::int8_t>(*at(k)));
      std::memcpy(out + k * 4, &value, sizeof value);
    }
    return;
  }
  for (std::int64_t block = 0; block * 32 < columns_; ++block) {
    BlockQ8_0 made;
    made.d = f32_to_f16(1.0f);
    if (!tensor_.rule.transposed)
      std::memcpy(made.qs, at(block * 32), 32);
    else
      for (int i = 0; i < 32; ++i) made.qs[i] = static_cast<std::int8_t>(*at(block * 32 + i));
    std::memcpy(out + block * static_cast<std::int64_t>(sizeof made), &made, sizeof made);
  }
}

void StoredRows::gather(std::int64_t row, std::int64_t count, const std::byte** pointers,
                        std::vector<std::byte>& scratch) const {
  if (!in_place_) scratch.resize(static_cast<std::size_t>(count * gathered_bytes_));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t source =
        first_ + (order_ != nullptr ? (*order_)[static_cast<std::size_t>(row + i)] : row + i);
    if (in_place_) {
      pointers[i] = tensor_.bytes.data() + source * row_bytes_;
    } else {
      fill(source, scratch.data() + i * gathered_bytes_);
      pointers[i] = scratch.data() + i * gathered_bytes_;
    }
  }
}

}  // namespace kvtide
