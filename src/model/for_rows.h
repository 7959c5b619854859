// for_rows.h: elementwise work on the rows of a chunk, a few rows for each item of the thread pool.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/quant_rows.h"

namespace kvtide {

// body(row) for every row from first to last - 1, each once, in any order.
template <class Body>
void for_rows(ThreadPool& pool, std::int64_t first, std::int64_t last, const Body& body) {
  // Threads that wrote to one group of quantised rows would wait for each other's lines.
  constexpr std::int64_t kRowsPerItem = kGroupRows;
  pool.run((last - first + kRowsPerItem - 1) / kRowsPerItem, [&](std::int64_t item) {
    const std::int64_t begin = first + item * kRowsPerItem;
    for (std::int64_t row = begin; row < std::min(last, begin + kRowsPerItem); ++row) body(row);
  });
}

}  // namespace kvtide
