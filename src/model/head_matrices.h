// head_matrices.h: recurrences that keep one matrix per head: tokens one by one in their order, columns over the threads.
//
// A column of a matrix depends on no other column. So what is worked on stays in the nearest cache while all tokens pass,
// and no bit depends on the chunk or on threads.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "state/state.h"

namespace kvtide {

// A tensor [heads][keys][values] that a step carries, and what is read of it: sums over the keys of every column.
struct HeadMatrices {
  std::size_t tensor = 0;
  std::int64_t heads = 0, keys = 0, values = 0;
  const float* read = nullptr;  // [tokens][heads][values], written by advance
};

// Columns [first, first + count) of a head's matrix.
struct HeadColumns {
  std::int64_t head = 0, first = 0, count = 0;
};

// advance(token, columns, before, after): [keys][count] behind a token from what it was before it; both may be the same
// memory. Throws Error(numeric) when what the step keeps is not finite.
using AdvanceColumns =
    FunctionRef<void(std::int64_t token, const HeadColumns& columns, const float* before, float* after)>;
void run_head_matrices(ThreadPool& pool, KvState::Step& step, const HeadMatrices& matrices,
                       AdvanceColumns advance);

}  // namespace kvtide
