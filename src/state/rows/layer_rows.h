// layer_rows.h: the rows one state holds of one layer, as runs of rows in shared extents.
//
// Rows are numbered by position. A fresh state owns one extent and appends to it. A copy (fork) shares the
// rows and starts an extent of its own with the first row it writes; what others can see is never written.
// Rows of one attention tile (64) always lie in one extent, so that sharing never changes the order of the
// arithmetic.
// Ownership: copies share extents.
// Thread rules: one state's rows are changed by one thread at a time; two states that share extents may be
// used from two threads, because shared rows are never written.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "state/rows/extent.h"

namespace kvtide {

// Rows of address space that a layer reserves at once, at least: growing within it moves nothing, and it costs no memory.
inline constexpr std::int64_t kReservedRows = std::int64_t{1} << 18;

class LayerRows {
 public:
  // A run of rows that are neighbours in memory.
  struct Run {
    Extent* extent;
    std::int64_t first, last;
  };

  LayerRows(const RowFormat& format, std::int64_t reserve);
  LayerRows(const LayerRows& other);  // shares all rows
  LayerRows& operator=(const LayerRows& other) = delete;
  LayerRows(LayerRows&&) noexcept = default;
  LayerRows& operator=(LayerRows&&) noexcept = default;

  const RowFormat& format() const { return format_; }

  // Makes rows [first, last) writable; `first` must be the end of the rows held (or lie in the tile that ends
  // them). Throws Error(out_of_memory) and changes nothing.
  void open(std::int64_t first, std::int64_t last);
  std::byte* key(int head, std::int64_t row);
  std::byte* value(int head, std::int64_t row);

  // Runs that cover the held rows of [first, last), in order.
  std::vector<Run> runs(std::int64_t first, std::int64_t last) const;

  // Keeps the memory of a held row, and of its run, in place for as long as the result lives: its pages are
  // given back later.
  std::shared_ptr<const Extent> pin(std::int64_t row) const;

  // Forgets rows [first, last): unshared pages go back to the operating system. Throws std::bad_alloc and
  // changes nothing, but never behind prepare_drop.
  void drop(std::int64_t first, std::int64_t last);
  void prepare_drop();
  // Forgets rows from `end` on; they read as zeros if they are opened again.
  void truncate(std::int64_t end) noexcept;

  // Pages of held rows: all of them, and those shared with other states.
  std::int64_t held_bytes() const;
  std::int64_t shared_bytes() const;

 private:
  struct Piece {
    std::size_t extent;  // index into extents_
    std::int64_t first, last;
  };
  bool can_write(const Piece& piece, std::int64_t row) const;
  void take_over() noexcept;
  void forget_unused_extents() noexcept;

  RowFormat format_;
  std::int64_t reserve_;
  // Each once: use_count() is the number of states that share it
  std::vector<std::shared_ptr<Extent>> extents_;
  std::vector<bool> ours_;     // may be appended to by this state
  std::vector<Piece> pieces_;  // ascending, not overlapping
};

}  // namespace kvtide
