// row_span.h: rows of one head that lie equally far apart, and passing their bytes on one after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace kvtide {

template <class Byte>
struct BasicRowSpan {
  Byte* data = nullptr;
  std::int64_t rows = 0, row_bytes = 0, stride = 0;

  std::span<Byte> row(std::int64_t r) const {
    return {data + r * stride, static_cast<std::size_t>(row_bytes)};
  }
  std::size_t bytes() const { return static_cast<std::size_t>(rows * row_bytes); }
};
using RowSpan = BasicRowSpan<std::byte>;
using ConstRowSpan = BasicRowSpan<const std::byte>;

// Calls part(bytes) for the rows' bytes without what lies between them, in order and in large parts. A part of a
// RowSpan is to be filled, and is not what the rows hold.
template <class Byte, class Part>
void in_dense_parts(const BasicRowSpan<Byte>& span, Part&& part) {
  if (span.stride == span.row_bytes) return part(std::span<Byte>(span.data, span.bytes()));
  constexpr std::int64_t kPart = std::int64_t{1} << 16;
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, std::min(kPart / span.row_bytes, span.rows));
  std::vector<std::byte> dense(static_cast<std::size_t>(rows_at_once * span.row_bytes));
  for (std::int64_t from = 0; from < span.rows; from += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, span.rows - from);
    const auto over_rows = [&](auto copy) {
      for (std::int64_t r = 0; r < count; ++r) copy(dense.data() + r * span.row_bytes, span.row(from + r));
    };
    if constexpr (std::is_const_v<Byte>)
      over_rows([](std::byte* at, auto row) { std::memcpy(at, row.data(), row.size()); });
    part(std::span<Byte>(dense.data(), static_cast<std::size_t>(count * span.row_bytes)));
    if constexpr (!std::is_const_v<Byte>)
      over_rows([](const std::byte* at, auto row) { std::memcpy(row.data(), at, row.size()); });
  }
}

}  // namespace kvtide
