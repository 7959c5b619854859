#include "base/arena.h"

#include <algorithm>

namespace kvtide {
namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kBuffer = std::size_t{64} << 20;  // address space: what is not taken is never touched

}  // namespace

std::byte* Arena::take(std::size_t size) {
  if (buffers_.empty() || size > buffers_.back().size() - used_) {
    buffers_.emplace_back(std::max(size, kBuffer), Buffer::Pages::large);
    used_ = 0;
  }
  std::byte* piece = buffers_.back().data() + used_;
  used_ = std::min(buffers_.back().size(), (used_ + size + kAlign - 1) / kAlign * kAlign);
  return piece;
}

}  // namespace kvtide
