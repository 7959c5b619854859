// dense.h: moving the rows of a dense array at the speed of the memory.
//
// An array is cut into blocks, one for each row and head; a block of the target takes the first `kept` bytes
// of the block of the source and is padding behind them.
// Ownership: none; the caller's bytes must not overlap.
// Thread rules: one pool, one caller at a time.
// Units: bytes.
// Invariant: every byte of the target is written exactly once, so that a target in memory costs one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace kvtide {

struct DenseMove {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::int64_t blocks = 0;
  std::int64_t source_block = 0;  // bytes from one block to the next
  std::int64_t target_block = 0;
  std::int64_t kept = 0;           // <= both
  std::span<const std::byte> pad;  // one element; divides the three sizes above
  bool target_is_padded = false;   // leave the padding out: it is there
  bool target_is_fresh = false;    // pages come with the first write, in the caches
};

// Bytes that a move reads and writes, for deciding how many threads it is worth.
std::int64_t bytes_moved(const DenseMove& move);

void run(const DenseMove& move, ThreadPool& pool);

}  // namespace kvtide
