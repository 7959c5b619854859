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

// Bytes of `heads` regions of each kind.
std::size_t all_regions(int heads, std::int64_t key_region, std::int64_t value_region) {
  const auto bytes =
      checked_mul(static_cast<std::uint64_t>(heads), static_cast<std::uint64_t>(key_region + value_region));
  if (!bytes || *bytes > (std::uint64_t{1} << 47))
    throw Error(ErrorCode::out_of_memory,
                cat("KV state: the rows of ", heads, " heads are more than memory can address"));
  return static_cast<std::size_t>(*bytes);
}

}  // namespace

Extent::Extent(const RowFormat& format, std::int64_t first, std::int64_t rows)
    : used(first),
      format_(format),
      first_(first),
      last_(first + rows),
      key_base_(page_floor(first * format.key_bytes)),
      value_base_(page_floor(first * format.value_bytes)),
      key_region_(reserved(rows, format.key_bytes)),
      value_region_(format.values_in_keys ? 0 : reserved(rows, format.value_bytes)),
      memory_(all_regions(format.kv_heads, key_region_, value_region_), Buffer::Pages::small) {}

// Calls action(offset, size) for the bytes of rows [first, last) of every head.
template <class Action>
void Extent::for_regions(std::int64_t first, std::int64_t last, Action action) noexcept {
  if (first >= last) return;
  const auto size = [&](std::int64_t row_bytes) {
    return static_cast<std::size_t>((last - first) * row_bytes);
  };
  for (int head = 0; head < format_.kv_heads; ++head) {
    action(static_cast<std::size_t>(key_offset(head, first)), size(format_.key_bytes));
    if (format_.values_in_keys) continue;
    action(static_cast<std::size_t>(value_offset(head, first)), size(format_.value_bytes));
  }
}

void Extent::release(std::int64_t first, std::int64_t last) noexcept {
  for_regions(first, last, [&](std::size_t offset, std::size_t size) { memory_.give_back(offset, size); });
}

void Extent::zero(std::int64_t first, std::int64_t last) noexcept {
  for_regions(first, last, [&](std::size_t offset, std::size_t size) { memory_.zero(offset, size); });
}

std::int64_t page_bytes(const RowFormat& format, std::int64_t first, std::int64_t last) {
  if (first >= last) return 0;
  const auto pages = [&](std::int64_t row_bytes) {
    return page_ceil(last * row_bytes) - page_floor(first * row_bytes);
  };
  const std::int64_t values = format.values_in_keys ? 0 : pages(format.value_bytes);
  return format.kv_heads * (pages(format.key_bytes) + values);
}

}  // namespace kvtide
