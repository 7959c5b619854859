#include "state/procedural/head_rows.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "base/pages.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::size_t kNoteStep = 64;  // notes are reserved in steps: doubling would overrun a budget

std::size_t whole_steps(std::size_t rows) { return (rows + kNoteStep - 1) / kNoteStep * kNoteStep; }

// Bytes of notes per row.
std::int64_t note_bytes(HeadRows::Kind kind) {
  return 4 * (1 + (HeadRows::has_scores(kind) ? 1 : 0) + (HeadRows::summarises(kind) ? 2 : 0));
}

}  // namespace

HeadRows::HeadRows(Kind kind, std::int64_t key_bytes, std::int64_t value_bytes, std::int64_t most)
    : kind_(kind),
      key_bytes_(key_bytes),
      value_bytes_(value_bytes),
      most_(most),
      keys_(static_cast<std::size_t>(key_bytes * most), Buffer::Pages::small),
      values_(static_cast<std::size_t>(value_bytes * most), Buffer::Pages::small) {}

std::unique_ptr<HeadRows> HeadRows::clone() const {
  auto copy = std::make_unique<HeadRows>(kind_, key_bytes_, value_bytes_, most_);
  copy->positions_ = positions_;
  copy->scores_ = scores_;
  copy->bias_ = bias_;
  copy->counts_ = counts_;
  std::memcpy(copy->keys_.data(), keys_.data(), static_cast<std::size_t>(rows() * key_bytes_));
  std::memcpy(copy->values_.data(), values_.data(), static_cast<std::size_t>(rows() * value_bytes_));
  return copy;
}

RowNote HeadRows::note(std::int64_t row) const {
  const auto i = static_cast<std::size_t>(row);
  RowNote note{positions_[i], 0.0f, 1.0f, 0.0f};
  if (has_scores(kind_)) note.score = scores_[i];
  if (summarises(kind_)) {
    note.bias = bias_[i];
    note.count = counts_[i];
  }
  return note;
}

void HeadRows::expect(std::int64_t more) {
  if (rows() + more > most_)
    throw Error(ErrorCode::out_of_memory, cat("procedural memory: a head holds ", rows(), " of at most ",
                                              most_, " rows and ", more, " more do not fit"));
  const auto needed = static_cast<std::size_t>(rows() + more);
  const auto make_room = [&](auto& list) {
    // To whole steps: the list of a clone may end anywhere.
    if (needed > list.capacity()) list.reserve(whole_steps(needed));
  };
  if (has_scores(kind_)) make_room(scores_);
  if (summarises(kind_)) {
    make_room(bias_);
    make_room(counts_);
  }
  make_room(positions_);
}

std::int64_t HeadRows::append(const RowNote& note) {
  expect(1);
  if (has_scores(kind_)) scores_.push_back(note.score);
  if (summarises(kind_)) {
    bias_.push_back(note.bias);
    counts_.push_back(note.count);
  }
  positions_.push_back(note.position);
  return rows() - 1;
}

void HeadRows::append(std::span<const RowNote> notes, std::span<const std::byte> keys,
                      std::span<const std::byte> values) {
  expect(std::ssize(notes));
  const std::int64_t first = rows();
  for (const RowNote& note : notes) append(note);
  std::copy(keys.begin(), keys.end(), key(first));
  std::copy(values.begin(), values.end(), value(first));
}

std::int64_t HeadRows::summaries(std::int64_t first, std::int64_t count) const {
  if (!summarises(kind_)) return 0;
  std::int64_t found = 0;
  for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(first + count); ++i)
    found += bias_[i] != 0.0f || counts_[i] != 1.0f;
  return found;
}

void HeadRows::stand_for(std::int64_t row, const RowNote& note, const std::byte* value) noexcept {
  const auto i = static_cast<std::size_t>(row);
  if (has_scores(kind_)) scores_[i] = note.score;
  bias_[i] = note.bias;
  counts_[i] = note.count;
  std::memcpy(this->value(row), value, static_cast<std::size_t>(value_bytes_));
}

void HeadRows::keep(std::span<const std::int64_t> kept, std::int64_t from) noexcept {
  const std::int64_t before = rows();
  std::int64_t end = 0;
  const auto move = [&](std::int64_t row, std::int64_t count) {
    if (row != end && count > 0) {
      std::memmove(key(end), key(row), static_cast<std::size_t>(count * key_bytes_));
      std::memmove(value(end), value(row), static_cast<std::size_t>(count * value_bytes_));
      std::copy_n(positions_.begin() + row, count, positions_.begin() + end);
      for (auto* list : {&scores_, &bias_, &counts_})
        if (!list->empty()) std::copy_n(list->begin() + row, count, list->begin() + end);
    }
    end += count;
  };
  for (std::size_t i = 0, next = 0; i < kept.size(); i = next) {
    while (next < kept.size() && kept[next] - kept[i] == static_cast<std::int64_t>(next - i)) ++next;
    move(kept[i], static_cast<std::int64_t>(next - i));
  }
  move(from, before - from);
  const auto cut = [&](auto& list) {
    if (list.empty()) return;
    list.resize(static_cast<std::size_t>(end));
    // No more is held than by a head that never had more rows.
    if (list.capacity() <= whole_steps(list.size())) return;
    try {
      std::remove_reference_t<decltype(list)> smaller;
      smaller.reserve(whole_steps(list.size()));
      smaller.assign(list.begin(), list.end());
      list = std::move(smaller);
    } catch (const std::bad_alloc&) {  // then it goes the next time
    }
  };
  cut(positions_);
  for (auto* list : {&scores_, &bias_, &counts_}) cut(*list);
  keys_.zero(static_cast<std::size_t>(end * key_bytes_),
             static_cast<std::size_t>((before - end) * key_bytes_));
  values_.zero(static_cast<std::size_t>(end * value_bytes_),
               static_cast<std::size_t>((before - end) * value_bytes_));
}

void HeadRows::clear() noexcept { keep({}, rows()); }

std::vector<const char*> note_names(HeadRows::Kind kind) {
  std::vector<const char*> names;
  if (HeadRows::has_scores(kind)) names.push_back("score");
  if (HeadRows::summarises(kind)) names.insert(names.end(), {"bias", "count"});
  return names;
}

std::vector<std::span<std::byte>> HeadRows::parts() {
  const auto count = static_cast<std::size_t>(rows());
  std::vector<std::span<std::byte>> parts = {{key(0), count * static_cast<std::size_t>(key_bytes_)},
                                             {value(0), count * static_cast<std::size_t>(value_bytes_)},
                                             std::as_writable_bytes(std::span(positions_))};
  for (auto* list : {&scores_, &bias_, &counts_})
    if (!list->empty()) parts.push_back(std::as_writable_bytes(std::span(*list)));
  return parts;
}

std::vector<std::span<const std::byte>> HeadRows::parts() const {
  std::vector<std::span<const std::byte>> parts;
  for (const auto part : const_cast<HeadRows*>(this)->parts()) parts.push_back(part);
  return parts;
}

std::int64_t HeadRows::held_bytes() const {
  const std::size_t notes =
      positions_.capacity() + scores_.capacity() + bias_.capacity() + counts_.capacity();
  return page_ceil(rows() * key_bytes_) + page_ceil(rows() * value_bytes_) +
         static_cast<std::int64_t>(notes * 4);
}

std::int64_t HeadRows::bytes_for(Kind kind, std::int64_t key_bytes, std::int64_t value_bytes,
                                 std::int64_t rows) {
  const auto step = static_cast<std::int64_t>(kNoteStep);
  return page_ceil(rows * key_bytes) + page_ceil(rows * value_bytes) +
         (rows + step - 1) / step * step * note_bytes(kind);
}

}  // namespace kvtide
