#include "state/rows/extent.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/pages.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

std::int64_t reserved(std::int64_t rows, std::int64_t row_bytes) {
  const auto bytes = checked_mul(static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(row_bytes));
  if (!bytes || *bytes > (std::uint64_t{1} << 46))
    throw Error(ErrorCode::out_of_memory,
                cat("KV state: ", rows, " rows of ", row_bytes, " bytes are more than memory can address"));
  return page_ceil(static_cast<std::int64_t>(*bytes)) +
         kPage;  // rows of a later extent may start inside a page
}

// Bytes of all regions, given those of a head (of all heads: together).
std::size_t all_regions(const RowFormat& format, std::int64_t keys, std::int64_t values) {
  if (format.heads_together) return static_cast<std::size_t>(keys);
  const auto bytes =
      checked_mul(static_cast<std::uint64_t>(format.kv_heads), static_cast<std::uint64_t>(keys + values));
  if (!bytes || *bytes > (std::uint64_t{1} << 47))
    throw Error(ErrorCode::out_of_memory,
                cat("KV state: the rows of ", format.kv_heads, " heads are more than memory can address"));
  return static_cast<std::size_t>(*bytes);
}

}  // namespace

Extent::Extent(const RowFormat& format, std::int64_t first, std::int64_t rows)
    : used(first),
      format_(format),
      first_(first),
      last_(first + rows),
      key_stride_(format.key_stride()),
      value_stride_(format.value_stride()),
      key_base_(page_floor(first * key_stride_)),
      value_base_(page_floor(first * value_stride_)) {
  const std::int64_t keys = reserved(rows, key_stride_),
                     values = format.values_in_keys ? 0 : reserved(rows, value_stride_);
  memory_ = Buffer(all_regions(format, keys, values), Buffer::Pages::small);
  key_region_ = format.heads_together ? format.key_bytes : keys;
  value_region_ = format.heads_together ? format.value_bytes : values;
  values_at_ = format.heads_together ? format.values_at() : format.kv_heads * keys;
}

// Calls action(offset, size) for the bytes of rows [first, last) of every head.
template <class Action>
void Extent::for_regions(std::int64_t first, std::int64_t last, Action action) noexcept {
  if (first >= last) return;
  const auto size = [&](std::int64_t stride) { return static_cast<std::size_t>((last - first) * stride); };
  for (int head = 0; head < (format_.heads_together ? 1 : format_.kv_heads); ++head) {
    action(static_cast<std::size_t>(key_offset(head, first)), size(key_stride_));
    if (format_.values_in_keys || format_.heads_together) continue;
    action(static_cast<std::size_t>(value_offset(head, first)), size(value_stride_));
  }
}

void Extent::release(std::int64_t first, std::int64_t last) noexcept {
  for_regions(first, last, [&](std::size_t offset, std::size_t size) { memory_.give_back(offset, size); });
}

void Extent::zero(std::int64_t first, std::int64_t last) noexcept {
  for_regions(first, last, [&](std::size_t offset, std::size_t size) { memory_.zero(offset, size); });
}

void Extent::copy_from(const Extent& other, std::int64_t first, std::int64_t last) noexcept {
  for (int head = 0; head < format_.kv_heads; ++head)
    for (std::int64_t row = first; row < last; ++row) {
      std::memcpy(key(head, row), other.key(head, row), static_cast<std::size_t>(format_.key_bytes));
      if (!format_.values_in_keys)
        std::memcpy(value(head, row), other.value(head, row), static_cast<std::size_t>(format_.value_bytes));
    }
}

}  // namespace kvtide
