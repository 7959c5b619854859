// limits.h: what a machine can do at most and what a model asks of it: the two sides of "share of the limit".
//
// Decode is bound by reading memory, prefill by arithmetic. Both sides are counted here from what the engine
// really does (model/decoder.cpp), not from the file's size. Thread rules: measure_limits uses the pool it is
// given alone. Units: bytes, operations (a product and its sum are two), seconds; giga is 10^9.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kvtide/session.h"

namespace kvtide {

struct MachineLimits {
  double read_gb_s = 0.0;     // reading memory that no cache holds
  double f32_gflop_s = 0.0;   // f32 fused multiply-adds
  double bf16_gflop_s = 0.0;  // pairs of bf16 products with f32 sums, as attention multiplies
  double int8_gop_s = 0.0;    // 8-bit dot products
};

// Best of several short measurements with the threads of the pool; takes about half a second and, for that
// time, 256 MiB. Throws Error(out_of_memory).
MachineLimits measure_limits(ThreadPool& pool, const Kernels& kernels);

// The same with as many threads and the kernels that a session with these options (filled in) has.
MachineLimits measure_limits(const SessionOptions& options);

// What a forward pass costs at least.
struct Work {
  double operations = 0.0;  // of matrix products, in attention a product and a sum for every visible element
  double bytes = 0.0;       // every matrix that is used, and every visible key and value, read once
  Work& operator+=(const Work& other);
};

// The same by parts.
struct PassWork {
  Work matmul, attention, head;
  PassWork& operator+=(const PassWork& other);
  double bytes() const { return matmul.bytes + attention.bytes + head.bytes; }
};

// One pass that appends `tokens` tokens to a session that holds `depth`, with `logit_rows` rows of logits (0
// or 1). Not of memories that compress: they hold other rows than the text has.
PassWork work_of_pass(const Model& model, const SessionOptions& options, Pos depth, std::int64_t tokens,
                      std::int64_t logit_rows);

// Session::read of `tokens` tokens: passes of options.prefill_chunk tokens, logits after the last.
PassWork work_of_reading(const Model& model, const SessionOptions& options, Pos depth, std::int64_t tokens);

// The limits that the parts of a pass run into, in giga-operations per second: of 8-bit dot products, or of
// f32 in exact mode and for weights that are not quantised; of bf16 pairs, or of f32 in exact mode.
struct PassLimits {
  double products = 0.0, attention = 0.0, read_gb_s = 0.0;
};
PassLimits pass_limits(const MachineLimits& limits, const Model& model, const SessionOptions& options);

// The least time that the work could take: each part as long as its arithmetic or its bytes alone would.
double least_seconds(const PassWork& work, const PassLimits& limits);

// What was reached at any time: a machine that others use gives less now and then.
MachineLimits best_of_both(const MachineLimits& a, const MachineLimits& b);

}  // namespace kvtide
