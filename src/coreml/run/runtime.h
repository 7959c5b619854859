// runtime.h: what operations compute with: threads, kernels, memory.
//
// Thread rules: one call at a time uses a Runtime.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"
#include "coreml/run/tensor.h"
#include "kernels/kernels.h"

namespace kvtide::coreml {

struct Runtime {
  Runtime(int thread_count, const Kernels& table) : threads(thread_count), kernels(table) {}
  ThreadPool threads;
  const Kernels& kernels;
  TensorPool tensors;
};

// body(first, last) over [0, n) in pieces of `grain`, by all threads when there are several. Pieces do not depend on the number
// of threads.
template <class Body>
void in_pieces(Runtime& run, std::int64_t n, std::int64_t grain, const Body& body) {
  const std::int64_t pieces = (n + grain - 1) / grain;
  const auto piece = [&](std::int64_t i) { body(i * grain, std::min(n, (i + 1) * grain)); };
  if (pieces > 1) {
    run.threads.run(pieces, piece);
  } else if (pieces == 1) {
    piece(0);
  }
}

}  // namespace kvtide::coreml
