#include "state/rows/layer_rows.h"

#include <algorithm>

#include "base/pages.h"
#include "base/sole_owner.h"
#include "kernels/attend_kernel.h"

namespace kvtide {
namespace {

std::int64_t tile_floor(std::int64_t row) { return row / kTileRows * kTileRows; }

}  // namespace

LayerRows::LayerRows(const RowFormat& format, std::int64_t reserve)
    : format_(format), reserve_((reserve + kTileRows - 1) / kTileRows * kTileRows) {}

LayerRows::LayerRows(const LayerRows& other)
    : format_(other.format_),
      reserve_(other.reserve_),
      extents_(other.extents_),
      ours_(other.extents_.size(), false),
      pieces_(other.pieces_) {
  for (const Piece& piece : pieces_) {
    auto& frozen = extents_[piece.extent]->frozen;
    std::int64_t before = frozen.load();
    while (before < piece.last && !frozen.compare_exchange_weak(before, piece.last)) {
    }
  }
}

std::shared_ptr<const Extent> LayerRows::pin(std::int64_t row) const {
  for (const Piece& piece : pieces_)
    if (row >= piece.first && row < piece.last) return extents_[piece.extent];
  return nullptr;
}

// Whoever shared an extent may be gone by now: what only they held, or what could not be given back while
// they read it, is wiped, and the extent is ours.
void LayerRows::take_over() noexcept {
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    Extent& extent = *extents_[i];
    if ((ours_[i] && extent.frozen == 0 && !extent.owes) || !sole_owner(extents_[i])) continue;
    std::int64_t next = extent.first();
    for (const Piece& piece : pieces_) {
      if (piece.extent != i) continue;
      extent.release(next, piece.first);
      next = piece.last;
    }
    extent.zero(next, extent.used);
    extent.used = next;
    extent.frozen = 0;
    extent.owes = false;
    ours_[i] = true;
  }
}

bool LayerRows::can_write(const Piece& piece, std::int64_t row) const {
  return ours_[piece.extent] && row >= extents_[piece.extent]->frozen;
}

void LayerRows::open(std::int64_t first, std::int64_t last) {
  take_over();
  if (!pieces_.empty()) {
    Piece& tail = pieces_.back();
    if (first >= tail.first && first <= tail.last && last <= extents_[tail.extent]->last() &&
        can_write(tail, first)) {
      tail.last = std::max(tail.last, last);
      extents_[tail.extent]->used = tail.last;
      return;
    }
  }
  // A new extent, from the start of the tile on: the tile's earlier rows move along as a copy.
  const std::int64_t start = tile_floor(first);
  auto extent =
      std::make_shared<Extent>(format_, start, std::max(reserve_, tile_floor(last - start + kTileRows - 1)));
  std::int64_t held_from = first;
  for (const Run& run : runs(start, first)) {
    if (run.last != first) continue;  // rows before a gap are seen apart anyway
    held_from = run.first;
    extent->copy_from(*run.extent, run.first, run.last);
  }
  extent->used = last;
  extents_.reserve(extents_.size() + 1);
  ours_.reserve(ours_.size() + 1);
  pieces_.reserve(pieces_.size() + 1);
  // From here on nothing needs memory.
  extents_.push_back(std::move(extent));
  ours_.push_back(true);
  for (Piece& piece : pieces_) piece.last = std::min(piece.last, held_from);
  std::erase_if(pieces_, [](const Piece& piece) { return piece.first >= piece.last; });
  pieces_.push_back({extents_.size() - 1, held_from, last});
  forget_unused_extents();
}

std::byte* LayerRows::key(int head, std::int64_t row) {
  return extents_[pieces_.back().extent]->key(head, row);
}

std::byte* LayerRows::value(int head, std::int64_t row) {
  return extents_[pieces_.back().extent]->value(head, row);
}

std::vector<LayerRows::Run> LayerRows::runs(std::int64_t first, std::int64_t last) const {
  std::vector<Run> found;
  for (const Piece& piece : pieces_) {
    const std::int64_t from = std::max(first, piece.first), to = std::min(last, piece.last);
    if (from < to) found.push_back({extents_[piece.extent].get(), from, to});
  }
  return found;
}

void LayerRows::prepare_drop() { pieces_.reserve(pieces_.size() + 1); }

void LayerRows::drop(std::int64_t first, std::int64_t last) {
  prepare_drop();
  take_over();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece piece = pieces_[i];
    const std::int64_t from = std::max(first, piece.first), to = std::min(last, piece.last);
    if (from >= to) continue;
    // The part before the hole stays where it is, empty when there is none.
    pieces_[i].last = from;
    if (to < piece.last) pieces_.insert(pieces_.begin() + ++i, {piece.extent, to, piece.last});
    if (!sole_owner(extents_[piece.extent])) {
      extents_[piece.extent]->owes = true;
      continue;
    }
    // A hole that grows row by row must give back the page that its new rows complete: look back one page of
    // rows, but not into rows that are still held.
    std::int64_t back = std::max(piece.first == from ? extents_[piece.extent]->first() : from,
                                 from - kPage / std::min(format_.key_stride(), format_.value_stride()) - 1);
    for (const Piece& other : pieces_)
      if (other.extent == piece.extent && other.first < std::min(from, other.last))
        back = std::max(back, other.last);
    extents_[piece.extent]->release(back, to);
  }
  std::erase_if(pieces_, [](const Piece& piece) { return piece.first >= piece.last; });
  forget_unused_extents();
}

void LayerRows::truncate(std::int64_t end) noexcept {
  take_over();
  for (Piece& piece : pieces_) piece.last = std::min(piece.last, end);
  std::erase_if(pieces_, [](const Piece& piece) { return piece.first >= piece.last; });
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    Extent& extent = *extents_[i];
    std::int64_t from = std::max(extent.first(), extent.frozen.load());
    for (const Piece& piece : pieces_)
      if (piece.extent == i) from = std::max(from, piece.last);
    // Also what was dropped behind the rows that remain: its pages may still hold the edges.
    if (!ours_[i] || from >= extent.used) continue;
    extent.zero(from, extent.used);
    extent.used = from;
  }
  forget_unused_extents();
}

std::int64_t LayerRows::held_bytes() const {
  std::int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += page_bytes(format_, piece.first, piece.last);
  return bytes;
}

std::int64_t LayerRows::shared_bytes() const {
  std::int64_t bytes = 0;
  for (const Piece& piece : pieces_) {
    const auto& extent = extents_[piece.extent];
    if (extent.use_count() == 1) continue;
    bytes += page_bytes(format_, piece.first,
                        ours_[piece.extent] ? std::min(piece.last, extent->frozen.load()) : piece.last);
  }
  return bytes;
}

void LayerRows::forget_unused_extents() noexcept {
  for (std::size_t i = extents_.size(); i-- > 0;) {
    const auto is_in_it = [&](const Piece& piece) { return piece.extent == i; };
    if (std::any_of(pieces_.begin(), pieces_.end(), is_in_it)) continue;
    extents_.erase(extents_.begin() + static_cast<std::ptrdiff_t>(i));
    ours_.erase(ours_.begin() + static_cast<std::ptrdiff_t>(i));
    for (Piece& piece : pieces_) piece.extent -= piece.extent > i ? 1 : 0;
  }
}

}  // namespace kvtide
