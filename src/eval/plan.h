// plan.h: what a procedural memory would take and how fast it could be, for models that are not here, too.
//
// Asks the code that sessions are made from (engine/session_spec.h, state/procedural/budget.h): a plan and a
// session of the same shape and options cannot disagree. Pure functions. Units: bytes, tokens, seconds.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "eval/limits.h"
#include "kvtide/session.h"
#include "model/config/config.h"

namespace kvtide {

// What decides what a memory takes and what a token costs.
struct ModelShape {
  std::string_view name;  // "mistral-7b"
  int layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t width = 0, hidden = 0, vocab = 0, trained = 0;
  std::int64_t window = 0;  // of sliding-window layers; 0: every layer sees everything
  int global_every = 1;     // with a window: every so many-th layer sees everything
};

std::span<const ModelShape> known_shapes();

// Throws Error(invalid_argument) for numbers that no model can have.
ModelConfig config_of(const ModelShape& shape);

// A table in which `full` heads, spread evenly over the layers that see everything, keep every row and the
// others are alike: an assumption where no model is there to be measured.
HeadTable assumed_heads(const ModelConfig& config, std::int64_t full);

struct MemoryPlan {
  SessionOptions options;       // completed: what was picked
  ProceduralBytes bytes;        // the most that is held at any moment, by what for
  std::int64_t full_cache = 0;  // the same text in a full f16 cache
  std::int64_t full_heads = 0, plain_heads = 0;
  // Texts that are shorter are kept as they are written; every row of them is kept.
  std::int64_t exact_below = 0, kept_below = 0;
};

// options.procedural must be set. Throws Error(invalid_argument), for instance for a budget that is too
// small.
MemoryPlan plan_memory(const ModelConfig& config, SessionOptions options, std::int64_t tokens);

// Elements of the matrices that a token goes through, the output matrix included.
double matrix_elements(const ModelConfig& config);
// Of all matrices that the model has: every expert, and the embedding where the output matrix is known to be another.
double stored_elements(const ModelConfig& config);

// The most that a machine's limits allow, at the end of the text:
//   write = read bandwidth / (bytes of weights + bytes of KV)
//   read  = 1 / (2 x matrix elements / rate of 8-bit products + 4 x head size x query heads x rows seen / f32
//   rate)
struct PredictedRates {
  double read_tok_s = 0.0, write_tok_s = 0.0, full_write_tok_s = 0.0;  // full: through the full f16 cache
};
PredictedRates predict(const ModelConfig& config, const MemoryPlan& plan, const MachineLimits& limits,
                       double weights_bytes);

}  // namespace kvtide
