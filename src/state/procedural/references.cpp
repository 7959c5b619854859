#include "state/procedural/references.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"

namespace kvtide {
namespace {

constexpr std::int64_t kPerBlock = 8;  // tokens that a sealed block leaves behind

}  // namespace

References::References(const Shape& shape) : shape_(shape), ring_(shape.span / shape.stride + 1) {
  std::int64_t layers = 0;
  for (const bool keeps : shape_.layers) layer_index_.push_back(keeps ? layers++ : -1);
  if (shape.from == 0) begin();
}

void References::begin() {
  if (begun_) return;
  const std::int64_t layers = std::count(shape_.layers.begin(), shape_.layers.end(), true);
  const auto numbers = static_cast<std::size_t>(layers * slots(shape_) * shape_.heads);
  std::vector<std::uint16_t> halves(numbers * static_cast<std::size_t>(shape_.head_dim));
  masses_.resize(numbers);
  halves_ = std::move(halves);
  begun_ = true;
}

void References::clear() noexcept {
  old_positions_.clear();
  retain_stride_ = 1;
  blocks_seen_ = 0;
  if (shape_.from == 0) return;
  std::vector<std::uint16_t>().swap(halves_);
  std::vector<float>().swap(masses_);
  begun_ = false;
}

std::int64_t References::slot(Pos position) const {
  const auto old = std::lower_bound(old_positions_.begin(), old_positions_.end(), position);
  if (old != old_positions_.end() && *old == position) return ring_ + (old - old_positions_.begin());
  return position / shape_.stride % ring_;
}

std::size_t References::at(int layer, std::int64_t slot) const {
  return static_cast<std::size_t>(layer_index_[static_cast<std::size_t>(layer)] * (ring_ + kMostRetained) +
                                  slot);
}

void References::put_query(int layer, Pos position, int head, const float* query) {
  const std::size_t width = static_cast<std::size_t>(shape_.heads * shape_.head_dim);
  std::uint16_t* target = halves_.data() + at(layer, position / shape_.stride % ring_) * width +
                          static_cast<std::size_t>(head * shape_.head_dim);
  for (int d = 0; d < shape_.head_dim; ++d) target[d] = f32_to_f16(query[d]);
}

void References::put_log_mass(int layer, Pos position, const float* log_mass) {
  const std::size_t index = at(layer, position / shape_.stride % ring_);
  std::memcpy(masses_.data() + index * static_cast<std::size_t>(shape_.heads), log_mass,
              static_cast<std::size_t>(shape_.heads) * sizeof(float));
}

std::vector<Pos> References::available(Pos first, Pos last) const {
  std::vector<Pos> positions;
  Pos p = first / shape_.stride * shape_.stride + shape_.stride / 2;
  if (p < first) p += shape_.stride;
  for (; p < last; p += shape_.stride) positions.push_back(p);
  return positions;
}

std::vector<Pos> References::spread(const std::vector<Pos>& positions, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(positions.size());
  if (size <= count) return positions;
  std::vector<Pos> chosen;
  for (std::int64_t i = 0; i < count; ++i)
    chosen.push_back(positions[static_cast<std::size_t>((2 * i + 1) * size / (2 * count))]);
  return chosen;
}

void References::retain(Pos first, Pos last, Pos position) {
  std::vector<Pos> chosen;
  if (blocks_seen_ % retain_stride_ == 0) {
    const Pos size = last - first;
    first = std::max({first, oldest(position), old_positions_.empty() ? 0 : old_positions_.back() + 1});
    last = std::min(std::max(last, first + size), position);
    chosen = spread(available(first, last), kPerBlock);
    old_positions_.reserve(static_cast<std::size_t>(kMostRetained + kPerBlock));
  }
  // From here on nothing needs memory.
  const std::int64_t block = blocks_seen_++;
  if (block % retain_stride_ != 0) return;
  if (static_cast<std::int64_t>(old_positions_.size() + chosen.size()) > kMostRetained) {
    // Every other token goes; from now on half as many blocks leave any.
    retain_stride_ *= 2;
    const std::size_t kept = (old_positions_.size() + 1) / 2;
    for (std::size_t i = 1; i < kept; ++i) old_positions_[i] = old_positions_[2 * i];
    for (std::size_t layer = 0; layer < layer_index_.size(); ++layer) {
      if (layer_index_[layer] < 0) continue;
      for (std::size_t i = 0; i < kept; ++i) {
        const std::size_t to = at(static_cast<int>(layer), ring_ + static_cast<std::int64_t>(i));
        const std::size_t from = at(static_cast<int>(layer), ring_ + static_cast<std::int64_t>(2 * i));
        const std::size_t width = static_cast<std::size_t>(shape_.heads * shape_.head_dim);
        const auto heads = static_cast<std::size_t>(shape_.heads);
        if (to == from) continue;
        std::memcpy(halves_.data() + to * width, halves_.data() + from * width, width * 2);
        std::memcpy(masses_.data() + to * heads, masses_.data() + from * heads, heads * sizeof(float));
      }
    }
    old_positions_.resize(kept);
  }
  for (const Pos p : chosen) {
    const std::int64_t source = p / shape_.stride % ring_;
    const auto target = ring_ + static_cast<std::int64_t>(old_positions_.size());
    for (std::size_t layer = 0; layer < layer_index_.size(); ++layer) {
      if (layer_index_[layer] < 0) continue;
      const std::size_t to = at(static_cast<int>(layer), target), from = at(static_cast<int>(layer), source);
      const std::size_t width = static_cast<std::size_t>(shape_.heads * shape_.head_dim);
      const auto heads = static_cast<std::size_t>(shape_.heads);
      std::memcpy(halves_.data() + to * width, halves_.data() + from * width, width * 2);
      std::memcpy(masses_.data() + to * heads, masses_.data() + from * heads, heads * sizeof(float));
    }
    old_positions_.push_back(p);
  }
}

const std::uint16_t* References::query_bits(int layer, Pos position, int head) const {
  const std::size_t width = static_cast<std::size_t>(shape_.heads * shape_.head_dim);
  return halves_.data() + at(layer, slot(position)) * width +
         static_cast<std::size_t>(head * shape_.head_dim);
}

void References::query(int layer, Pos position, int head, float* out) const {
  const std::uint16_t* source = query_bits(layer, position, head);
  for (int d = 0; d < shape_.head_dim; ++d) out[d] = f16_to_f32(source[d]);
}

float References::log_mass(int layer, Pos position, int head) const {
  return masses_[at(layer, slot(position)) * static_cast<std::size_t>(shape_.heads) +
                 static_cast<std::size_t>(head)];
}

std::int64_t References::held_bytes() const { return begun_ ? bytes_for(shape_) : 0; }

std::int64_t References::bytes_for(const Shape& shape) {
  const std::int64_t layers = std::count(shape.layers.begin(), shape.layers.end(), true);
  return layers * slots(shape) * shape.heads *
         (2 * shape.head_dim + static_cast<std::int64_t>(sizeof(float)));
}

}  // namespace kvtide
