// head_rows.h: the rows that one (layer, KV head) keeps of its past, in the order of the text.
//
// Keys are as they were rotated when written. A row with bias 0 that stands for itself is an exact row of the
// text; a summary has a bias (nats) and a value of its own. Rows lie without gaps, so that attention reads
// them as one span. Ownership: owns its memory; pages are taken as rows are appended and given back when rows
// go. Thread rules: one thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "kvtide/types.h"

namespace kvtide {

// What is known of a row besides key and value.
struct RowNote {
  std::int32_t position = 0;  // of its key
  float bias = 0.0f;          // nats
  float count = 1.0f;         // tokens it stands for
  float score = 0.0f;         // what would be lost with it, comparable between heads and blocks
};
// The score of summaries, whatever they stand for: nothing outranks them.
inline constexpr float kSummaryScore = std::numeric_limits<float>::max();

class HeadRows {
 public:
  // What is kept of a row's note: an exact row needs no bias and stands for itself, and only a memory that sheds asks for
  // scores.
  enum class Kind { exact, exact_scored, summaries, summaries_scored };
  static constexpr bool summarises(Kind kind) {
    return kind == Kind::summaries || kind == Kind::summaries_scored;
  }
  static constexpr bool has_scores(Kind kind) {
    return kind == Kind::exact_scored || kind == Kind::summaries_scored;
  }
  // Reserves address space for `most` rows. Throws Error(out_of_memory).
  HeadRows(Kind kind, std::int64_t key_bytes, std::int64_t value_bytes, std::int64_t most);
  std::unique_ptr<HeadRows> clone() const;

  std::int64_t rows() const { return static_cast<std::int64_t>(positions_.size()); }
  std::byte* key(std::int64_t row) { return keys_.data() + row * key_bytes_; }
  std::byte* value(std::int64_t row) { return values_.data() + row * value_bytes_; }
  const std::byte* key(std::int64_t row) const { return keys_.data() + row * key_bytes_; }
  const std::byte* value(std::int64_t row) const { return values_.data() + row * value_bytes_; }
  std::int64_t key_bytes() const { return key_bytes_; }
  std::int64_t value_bytes() const { return value_bytes_; }
  // [rows] to be added to scores; nullptr when every row stands for itself.
  const float* bias() const { return summarises(kind_) ? bias_.data() : nullptr; }
  RowNote note(std::int64_t row) const;
  std::int32_t position(std::int64_t row) const { return positions_[static_cast<std::size_t>(row)]; }
  // Of `count` rows from `first` on those that have a bias or stand for more than themselves.
  std::int64_t summaries(std::int64_t first, std::int64_t count) const;
  // Where rows may be summaries: from now on a row stands for more. value: value_bytes().
  void stand_for(std::int64_t row, const RowNote& note, const std::byte* value) noexcept;
  void set_score(std::int64_t row, float score) { scores_[static_cast<std::size_t>(row)] = score; }

  // Makes room for the notes of so many rows more: appending these needs no memory.
  // Throws Error(out_of_memory) beyond the reservation.
  void expect(std::int64_t more);
  // Adds a row at the end and returns its number; the caller fills key() and value(). Throws as expect().
  std::int64_t append(const RowNote& note);
  // The same for rows whose keys and values lie one after the other.
  void append(std::span<const RowNote> notes, std::span<const std::byte> keys,
              std::span<const std::byte> values);
  // Keeps the rows whose numbers are listed (ascending) and every row from `from` on.
  void keep(std::span<const std::int64_t> rows, std::int64_t from) noexcept;
  void clear() noexcept;

  // The bytes of keys, values, positions and then of note_names(kind), for snapshots.
  std::vector<std::span<std::byte>> parts();
  std::vector<std::span<const std::byte>> parts() const;

  std::int64_t held_bytes() const;  // pages of rows, and their notes
  // What `rows` rows hold at most.
  static std::int64_t bytes_for(Kind kind, std::int64_t key_bytes, std::int64_t value_bytes,
                                std::int64_t rows);

 private:
  Kind kind_;
  std::int64_t key_bytes_, value_bytes_, most_;
  Buffer keys_, values_;
  std::vector<std::int32_t> positions_;
  std::vector<float> scores_, bias_, counts_;  // as kind_ says
};

// The notes besides positions, one float per row each.
std::vector<const char*> note_names(HeadRows::Kind kind);

}  // namespace kvtide
