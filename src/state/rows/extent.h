// extent.h: reserved address space for the rows of one layer. Storage only: what the rows mean is decided
// above.
//
// Row r of a KV head keeps its address for as long as the extent lives: rows are numbered by position, the
// reservation is large, pages are taken by the first write and given back when rows are released. So growing
// copies nothing, a window that moves on leaves only a hole behind, and shrinking is visible in the resident
// set.
// Ownership: owns its mapping.
// Thread rules: different rows from different threads; release and zero alone. Small pages only: 2 MiB pages
// times 180 regions would cost a short text hundreds of megabytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/buffer.h"
#include "state/rows/row_format.h"

namespace kvtide {

class Extent {
 public:
  // Reserves rows [first, first + rows). Throws Error(out_of_memory) when the address space cannot be had.
  Extent(const RowFormat& format, std::int64_t first, std::int64_t rows);

  std::int64_t first() const { return first_; }
  std::int64_t last() const { return last_; }
  std::byte* key(int head, std::int64_t row) { return memory_.data() + key_offset(head, row); }
  std::byte* value(int head, std::int64_t row) { return memory_.data() + value_offset(head, row); }
  const std::byte* key(int head, std::int64_t row) const { return memory_.data() + key_offset(head, row); }
  const std::byte* value(int head, std::int64_t row) const {
    return memory_.data() + value_offset(head, row);
  }

  // Gives the pages that lie wholly in rows [first, last) back to the operating system.
  void release(std::int64_t first, std::int64_t last) noexcept;
  // Makes rows [first, last) read as zeros, giving back whole pages.
  void zero(std::int64_t first, std::int64_t last) noexcept;

  // Rows [first, last), which both have, from an extent of the same format.
  void copy_from(const Extent& other, std::int64_t first, std::int64_t last) noexcept;

  // Rows below this are read by other states as well and must not be written while they hold the extent.
  // Atomic: a fork may raise it while another state appends beyond it.
  std::atomic<std::int64_t> frozen{0};
  // Pages could not be given back because someone looked at them; whoever is left does it later.
  std::atomic<bool> owes{false};
  // Rows from here on read as zeros. Changed by the state that appends.
  std::atomic<std::int64_t> used;

 private:
  std::int64_t key_offset(int head, std::int64_t row) const {
    return head * key_region_ + row * key_stride_ - key_base_;
  }
  std::int64_t value_offset(int head, std::int64_t row) const {
    if (format_.values_in_keys) return key_offset(head, row);
    return values_at_ + head * value_region_ + row * value_stride_ - value_base_;
  }
  template <class Action>
  void for_regions(std::int64_t first, std::int64_t last, Action action) noexcept;

  RowFormat format_;
  std::int64_t first_, last_;
  std::int64_t key_stride_, value_stride_;
  std::int64_t key_base_, value_base_;      // byte offset of row `first` counted from row 0
  std::int64_t key_region_, value_region_;  // from one head to the next
  std::int64_t values_at_;                  // from the first key to the first value
  Buffer memory_;
};

}  // namespace kvtide
