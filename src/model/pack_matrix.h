// pack_matrix.h: one matrix of a checkpoint into panels, by all threads.
//
// Ownership: refers to the checkpoint, the pool and the place.
// Thread rules: one caller.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "formats/packed_file.h"
#include "model/checkpoint.h"
#include "model/panel_place.h"
#include "model/stored_rows.h"

namespace kvtide {

// Bytes of the panels of a matrix; 0: its type has none.
std::int64_t packed_bytes(DType dtype, std::int64_t rows, std::int64_t columns);

class MatrixPacker {
 public:
  MatrixPacker(const Checkpoint& checkpoint, ThreadPool& pool, PanelPlace& place)
      : checkpoint_(checkpoint), pool_(pool), place_(place) {}

  // Where the panels are; nullptr: its type has none, or the place is one that cannot be read. All numbers are
  // looked at in either case. Throws Error(numeric), and what the place throws.
  const std::byte* pack(const StoredTensor& tensor, const StoredRows& source, const PackedMatrix& wanted);

  [[noreturn]] void refuse_numbers(const StoredTensor& tensor) const;

 private:
  void release(const StoredTensor& tensor, std::int64_t offset, std::int64_t size) const noexcept;

  const Checkpoint& checkpoint_;
  ThreadPool& pool_;
  PanelPlace& place_;
};

}  // namespace kvtide
