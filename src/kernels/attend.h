// attend.h: attention of a chunk of tokens over the spans of one layer, spread over the threads.
//
// out[t][head] = softmax over visible rows of (q.k * scale + log mass), times values. A query at position p
// sees the rows of [max(0, p - window + 1), p], and every row that has no position. The fold is a fixed tree
// (idea 4): tiles of 64 positions, aligned to position 0 (to the row index for rows without a position), fold
// into groups of 1,024 positions, groups into the result, in order. Chunking, threads and where rows lie in
// memory change nothing.
#pragma once

#include "base/thread_pool.h"
#include "kernels/attend_input.h"
#include "kernels/attend_kernel.h"

namespace kvtide {

// out: [tokens][heads * head_dim]. log_mass: [tokens][heads], the logarithm of each softmax's denominator, in
// nats; or nullptr.
void attend(ThreadPool& pool, const AttendRow& kernels, const AttendInput& input, float* out,
            float* log_mass = nullptr);

}  // namespace kvtide
