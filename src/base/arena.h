// arena.h: memory for many pieces that are given up together, side by side in 2 MiB pages where the system
// has them. Large pages mean fewer page faults while it is filled and fewer address translations while it is
// read.
//
// Ownership: owns all pieces; movable, pieces stay where they are.
// Thread rules: take() from one thread at a time.
// Invariant: pieces start as zeros at multiples of 64 bytes.
#pragma once

#include <cstddef>
#include <vector>

#include "base/buffer.h"

namespace kvtide {

class Arena {
 public:
  // `size` bytes of zeros. Throws Error(out_of_memory).
  std::byte* take(std::size_t size);

 private:
  std::vector<Buffer> buffers_;
  std::size_t used_ = 0;  // bytes of the last buffer
};

}  // namespace kvtide
