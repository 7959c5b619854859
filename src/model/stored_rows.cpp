#include "model/stored_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "tensor/blocks.h"

namespace kvtide {
namespace {

constexpr int kLeastHalfExponent = -24, kMostHalfExponent = 15;

// neighbours: bytes hold elements 2 i and 2 i + 1, not i and i + 16.
BlockQ5_0 five_bits(const BlockMxfp4& in, bool neighbours) {
  BlockQ5_0 out{};
  const int exponent = in.e - 128;  // of the doubled elements
  if (exponent > kMostHalfExponent) {
    out.d = f32_to_f16(std::numeric_limits<float>::infinity());
    return out;
  }
  const int kept = std::max(exponent, kLeastHalfExponent);
  out.d = f32_to_f16(std::ldexp(1.0f, kept));
  std::uint32_t fifth = 0;
  for (int i = 0; i < 32; ++i) {
    const int byte = neighbours ? i / 2 : i % 16, shift = (neighbours ? i % 2 : i / 16) * 4;
    const int element = kMxfp4Doubled[(in.qs[byte] >> shift) & 15];
    const int q =
        16 + static_cast<int>(std::nearbyint(std::ldexp(static_cast<float>(element), exponent - kept)));
    out.qs[i % 16] = static_cast<std::uint8_t>(out.qs[i % 16] | (q & 15) << (i / 16 * 4));
    fifth |= static_cast<std::uint32_t>(q >> 4) << i;
  }
  for (int i = 0; i < 4; ++i) out.qh[i] = static_cast<std::uint8_t>(fifth >> (8 * i));
  return out;
}

}  // namespace

StoredRows::StoredRows(const StoredTensor& tensor, std::int64_t first, std::int64_t rows,
                       std::int64_t columns, const std::vector<std::int32_t>* order)
    : tensor_(tensor),
      order_(order),
      dtype_(tensor.dtype),
      int8_(!tensor.scales.empty()),
      mxfp4_(tensor.dtype == DType::mxfp4),
      in_place_(!int8_ && !mxfp4_ && !tensor.rule.transposed),
      first_(first),
      columns_(columns),
      stride_(rows),
      stacked_rows_(0) {
  if (tensor.rule.transposed) stacked_rows_ = stride_ = tensor.shape.back();
  if (mxfp4_) {
    dtype_ = DType::q5_0;
    element_ = 1;
    row_bytes_ = tensor.block_scales.empty() ? dtype_bytes(DType::mxfp4, columns) : columns / 2;
  } else if (int8_) {
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

void StoredRows::fill_mxfp4(std::int64_t row, std::byte* out) const {
  const bool apart = !tensor_.block_scales.empty();
  const std::int64_t blocks = columns_ / 32;
  const std::byte* from = tensor_.bytes.data() + row * row_bytes_;
  for (std::int64_t b = 0; b < blocks; ++b, out += sizeof(BlockQ5_0)) {
    BlockMxfp4 in;
    if (apart) {
      in.e = std::to_integer<std::uint8_t>(tensor_.block_scales[static_cast<std::size_t>(row * blocks + b)]);
      std::memcpy(in.qs, from + 16 * b, sizeof in.qs);
    } else {
      std::memcpy(&in, from + b * static_cast<std::int64_t>(sizeof in), sizeof in);
    }
    const BlockQ5_0 made = five_bits(in, apart);
    std::memcpy(out, &made, sizeof made);
  }
}

void StoredRows::fill(std::int64_t row, std::byte* out) const {
  if (mxfp4_) return fill_mxfp4(row, out);
  const std::byte* bytes = tensor_.bytes.data();
  const auto at = [&](std::int64_t k) {
    if (!tensor_.rule.transposed) return bytes + (row * columns_ + k) * element_;
    const std::int64_t matrix = row / stacked_rows_, within = row % stacked_rows_;
    return bytes + (matrix * stacked_rows_ * columns_ + k * stride_ + within) * element_;
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
