#include "state/procedural/head_rows.h"

#include <cstring>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::size_t kNoteStep = 256;  // notes are reserved in steps: doubling would overrun a budget

std::int64_t pages(std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

template <class T>
void reserve_step(std::vector<T>& v) {
  if (v.size() == v.capacity()) v.reserve(v.size() + kNoteStep);
}

}  // namespace

HeadRows::HeadRows(std::int64_t key_bytes, std::int64_t value_bytes, std::int64_t most)
    : key_bytes_(key_bytes),
      value_bytes_(value_bytes),
      most_(most),
      keys_(static_cast<std::size_t>(key_bytes * most), Buffer::Pages::small),
      values_(static_cast<std::size_t>(value_bytes * most), Buffer::Pages::small) {}

std::unique_ptr<HeadRows> HeadRows::clone() const {
  auto copy = std::make_unique<HeadRows>(key_bytes_, value_bytes_, most_);
  copy->bias_ = bias_;
  copy->notes_ = notes_;
  std::memcpy(copy->keys_.data(), keys_.data(), static_cast<std::size_t>(rows() * key_bytes_));
  std::memcpy(copy->values_.data(), values_.data(), static_cast<std::size_t>(rows() * value_bytes_));
  return copy;
}

std::int64_t HeadRows::append(float bias, const RowNote& note) {
  if (rows() == most_)
    throw Error(ErrorCode::out_of_memory,
                cat("procedural memory: a head holds ", most_, " rows and one more does not fit"));
  reserve_step(bias_);
  reserve_step(notes_);
  bias_.push_back(bias);
  notes_.push_back(note);
  return rows() - 1;
}

void HeadRows::keep(std::span<const std::int64_t> kept, std::int64_t from) {
  const std::int64_t before = rows();
  std::int64_t end = 0;
  const auto move = [&](std::int64_t row, std::int64_t count) {
    if (row != end && count > 0) {
      std::memmove(key(end), key(row), static_cast<std::size_t>(count * key_bytes_));
      std::memmove(value(end), value(row), static_cast<std::size_t>(count * value_bytes_));
      std::memmove(bias_.data() + end, bias_.data() + row, static_cast<std::size_t>(count) * sizeof(float));
      std::memmove(notes_.data() + end, notes_.data() + row,
                   static_cast<std::size_t>(count) * sizeof(RowNote));
    }
    end += count;
  };
  for (const std::int64_t row : kept) move(row, 1);
  move(from, before - from);
  bias_.resize(static_cast<std::size_t>(end));
  notes_.resize(static_cast<std::size_t>(end));
  keys_.zero(static_cast<std::size_t>(end * key_bytes_),
             static_cast<std::size_t>((before - end) * key_bytes_));
  values_.zero(static_cast<std::size_t>(end * value_bytes_),
               static_cast<std::size_t>((before - end) * value_bytes_));
}

void HeadRows::clear() { keep({}, rows()); }

std::int64_t HeadRows::held_bytes() const {
  return pages(rows() * key_bytes_) + pages(rows() * value_bytes_) +
         static_cast<std::int64_t>(bias_.capacity() * sizeof(float) + notes_.capacity() * sizeof(RowNote));
}

}  // namespace kvtide
