// head_matrices.h: recurrences that keep one matrix per head: tokens one by one in their order, heads over the threads.
//
// So no bit depends on the chunk or on threads.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "state/state.h"

namespace kvtide {

// A tensor [heads][size] that a step carries.
struct HeadMatrices {
  std::size_t tensor = 0;
  std::int64_t heads = 0, size = 0;
};

// advance(token, head, before, after): one head's matrix behind a token from the one before it; both may be the same
// memory. Throws Error(numeric) when what the step keeps is not finite.
using AdvanceHead =
    FunctionRef<void(std::int64_t token, std::int64_t head, const float* before, float* after)>;
void run_head_matrices(ThreadPool& pool, KvState::Step& step, const HeadMatrices& matrices,
                       AdvanceHead advance);

}  // namespace kvtide
