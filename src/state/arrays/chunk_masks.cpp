#include "state/arrays/chunk_masks.h"

#include <algorithm>

#include "base/refuse.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "kvtide/masks.h"

namespace kvtide {
namespace {

std::string column_text(std::int64_t t) { return cat("column ", t, " "); }

class Reader {
 public:
  Reader(const MaskShape& shape, std::span<const float> attention, std::span<const float> write)
      : shape_(shape), attention_(attention), write_(write) {}

  std::vector<Pos> read() {
    const auto area = static_cast<std::size_t>(shape_.columns * shape_.slots);
    if (attention_.size() != area)
      refuse(cat("the attention mask has ", attention_.size(), " elements; [1, 1, ", shape_.columns, ", ",
                 shape_.slots, "] has ", area));
    if (write_.size() != area)
      refuse(cat("the write mask has ", write_.size(), " elements; [1, 1, ", shape_.slots, ", ",
                 shape_.columns, "] has ", area));
    find_writes();
    std::vector<Pos> lowest;
    for (std::int64_t t = 0; t < shape_.columns; ++t) {
      if (t < active_)
        lowest.push_back(visible_from(t));
      else
        nothing_visible(t);
    }
    return lowest;
  }

 private:
  // The slot that every column is written to, and the number of active columns.
  void find_writes() {
    std::vector<std::int64_t> slot(static_cast<std::size_t>(shape_.columns), -1);
    for (std::int64_t s = 0; s < shape_.slots; ++s)
      for (std::int64_t t = 0; t < shape_.columns; ++t) {
        const float value = write_[static_cast<std::size_t>(s * shape_.columns + t)];
        if (value == 0.0f) continue;
        if (value != 1.0f)
          refuse(cat("the write mask is ", value, " at slot ", s, " of ", column_text(t),
                     "; it must be 0 or 1"));
        std::int64_t& first = slot[static_cast<std::size_t>(t)];
        if (first >= 0)
          refuse(cat(column_text(t), "is written to slot ", first, " and to slot ", s,
                     "; a column has one slot"));
        first = s;
      }
    for (; active_ < shape_.columns && slot[static_cast<std::size_t>(active_)] >= 0; ++active_) {
      const std::int64_t wanted = shape_.position + active_, got = slot[static_cast<std::size_t>(active_)];
      if (got == wanted) continue;
      if (wanted >= shape_.slots)
        throw Error(ErrorCode::context_full,
                    cat("the state has ", shape_.slots, " slots and holds ", shape_.position, " positions; ",
                        column_text(active_), "would need slot ", wanted));
      refuse(cat(column_text(active_), "is written to slot ", got, "; the state holds ", shape_.position,
                 " positions, so it belongs to slot ", wanted));
    }
    for (std::int64_t t = active_; t < shape_.columns; ++t)
      if (const std::int64_t got = slot[static_cast<std::size_t>(t)]; got >= 0)
        refuse(cat(column_text(t), "is written to slot ", got, ", but ", column_text(active_),
                   "is written nowhere; the active columns come first"));
    if (active_ == 0) {
      if (shape_.position >= shape_.slots)
        throw Error(ErrorCode::context_full,
                    cat("the state is full: all ", shape_.slots, " slots are in use"));
      refuse("no column is written: the first belongs to slot " + std::to_string(shape_.position));
    }
  }

  bool is_visible(std::int64_t t, std::int64_t s) const {
    const float value = attention_[static_cast<std::size_t>(t * shape_.slots + s)];
    if (value == 0.0f) return true;
    if (!(value <= kHidden))
      refuse(cat("the attention mask is ", value, " at slot ", s, " of ", column_text(t),
                 "; it must be 0 (visible) or at most ", kHidden, " (hidden)"));
    return false;
  }

  Pos visible_from(std::int64_t t) const {
    const Pos own = shape_.position + t;
    Pos lowest = -1;
    for (std::int64_t s = 0; s < shape_.slots; ++s) {
      const bool visible = is_visible(t, s);
      if (visible && s > own)
        refuse(cat(column_text(t), "sees slot ", s, ", which comes after its own slot ", own));
      if (visible && lowest < 0) lowest = s;
      if (!visible && s <= own && (lowest >= 0 || s == own))
        refuse(cat(column_text(t), "does not see slot ", s, ", but it must see every slot from ",
                   lowest >= 0 ? lowest : s, " to its own, ", own));
    }
    if (shape_.window && own - lowest + 1 > *shape_.window)
      refuse(cat(column_text(t), "sees slot ", lowest, "; the window of this layer is ", *shape_.window,
                 ", so slot ", own - *shape_.window + 1, " is the first it may see"));
    return lowest;
  }

  void nothing_visible(std::int64_t t) const {
    for (std::int64_t s = 0; s < shape_.slots; ++s)
      if (is_visible(t, s))
        refuse(cat(column_text(t), "sees slot ", s,
                   ", but is written nowhere; a column that is not active sees "
                   "nothing"));
  }

  const MaskShape& shape_;
  std::span<const float> attention_, write_;
  std::int64_t active_ = 0;
};

}  // namespace

std::vector<Pos> read_masks(const MaskShape& shape, std::span<const float> attention,
                            std::span<const float> write) {
  return Reader(shape, attention, write).read();
}

}  // namespace kvtide
