// panel_place.h: where the packed matrices of a model come to lie while it is loaded: in memory of its own, or in a
// file.
//
// Ownership: an arena or a writer is the caller's and must outlive the place.
// Thread rules: one caller; meanwhile() may run on another thread while the room given out last is filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/buffer.h"
#include "formats/packed_file.h"

namespace kvtide {

class PanelPlace {
 public:
  virtual ~PanelPlace() = default;
  virtual void begin(const PackedMatrix& matrix) = 0;
  // Room for the next `bytes` of the matrix, not zeroed. What was given out before is full.
  virtual std::byte* room(std::size_t bytes) = 0;
  // Work that is left to do on room that is full: it can be done while the next is filled.
  virtual void meanwhile() {}
  // The matrix where it can be read; nullptr: not here.
  virtual const std::byte* end() = 0;
};

class MemoryPlace final : public PanelPlace {
 public:
  explicit MemoryPlace(Arena& arena) : arena_(arena) {}
  void begin(const PackedMatrix& matrix) override {
    start_ = next_ = matrix.bytes > 0 ? arena_.take(matrix.bytes) : nullptr;
  }
  std::byte* room(std::size_t bytes) override {
    std::byte* here = next_;
    if (next_ != nullptr) next_ += bytes;
    return here;
  }
  const std::byte* end() override { return start_; }

 private:
  Arena& arena_;
  std::byte *start_ = nullptr, *next_ = nullptr;
};

// Two pieces of memory in turn: one is filled while the other is summed and written.
class WriterPlace final : public PanelPlace {
 public:
  explicit WriterPlace(PackedWriter& writer) : writer_(writer) {}
  void begin(const PackedMatrix& matrix) override { announced_.push_back(matrix); }
  std::byte* room(std::size_t bytes) override;
  void meanwhile() override;
  const std::byte* end() override { return nullptr; }
  void finish();  // writes what is left

 private:
  struct Piece {
    std::vector<PackedMatrix> begun;  // before it; all but the last have no bytes
    std::span<const std::byte> bytes;
  };

  PackedWriter& writer_;
  Buffer buffers_[2];
  std::vector<PackedMatrix> announced_;
  Piece full_, filling_;
  int turn_ = 0;
};

}  // namespace kvtide
