#include "state/procedural/references.h"

#include <algorithm>
#include <cstring>

#include "state/procedural/stored_row.h"

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
  std::vector<std::byte> queries(numbers * query_bytes());
  masses_.resize(numbers);
  queries_ = std::move(queries);
  begun_ = true;
}

void References::clear() noexcept {
  old_positions_.clear();
  retain_stride_ = 1;
  blocks_seen_ = 0;
  if (shape_.from == 0) return;
  std::vector<std::byte>().swap(queries_);
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

void References::put_query(const Kernels& kernels, int layer, Pos position, int head, const float* query) {
  std::byte* kept = queries_.data() + at(layer, position / shape_.stride % ring_) * slot_bytes() +
                    static_cast<std::size_t>(head) * query_bytes();
  float row[kMaxHeadDim];
  std::copy_n(query, shape_.head_dim, row);
  store_row(kernels, shape_.type, {row, static_cast<std::size_t>(shape_.head_dim)}, {}, kept);
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
    for (std::size_t i = 1; i < kept; ++i) {
      old_positions_[i] = old_positions_[2 * i];
      copy_slot(ring_ + static_cast<std::int64_t>(2 * i), ring_ + static_cast<std::int64_t>(i));
    }
    old_positions_.resize(kept);
  }
  for (const Pos p : chosen) {
    copy_slot(p / shape_.stride % ring_, ring_ + static_cast<std::int64_t>(old_positions_.size()));
    old_positions_.push_back(p);
  }
}

void References::copy_slot(std::int64_t from, std::int64_t to) {
  const auto heads = static_cast<std::size_t>(shape_.heads);
  for (std::size_t i = 0; i < layer_index_.size(); ++i) {
    if (layer_index_[i] < 0) continue;
    const std::size_t source = at(static_cast<int>(i), from), target = at(static_cast<int>(i), to);
    std::memcpy(queries_.data() + target * slot_bytes(), queries_.data() + source * slot_bytes(),
                slot_bytes());
    std::memcpy(masses_.data() + target * heads, masses_.data() + source * heads, heads * sizeof(float));
  }
}

void References::query(const Kernels& kernels, std::size_t place, int head, float* out) const {
  const std::byte* kept =
      queries_.data() + place * slot_bytes() + static_cast<std::size_t>(head) * query_bytes();
  read_row(kernels, shape_.type, kept, {}, {out, static_cast<std::size_t>(shape_.head_dim)});
}

float References::log_mass(std::size_t place, int head) const {
  return masses_[place * static_cast<std::size_t>(shape_.heads) + static_cast<std::size_t>(head)];
}

std::int64_t References::held_bytes() const { return begun_ ? bytes_for(shape_) : 0; }

std::int64_t References::bytes_for(const Shape& shape) {
  const std::int64_t layers = std::count(shape.layers.begin(), shape.layers.end(), true);
  return layers * slots(shape) * shape.heads *
         (dtype_bytes(shape.type, shape.head_dim) + static_cast<std::int64_t>(sizeof(float)));
}

}  // namespace kvtide
