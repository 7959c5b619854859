// memory_flags.h: what the user asked the KV memory to do, as checked values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/overflow.h"
#include "kvtide/procedural.h"
#include "kvtide/types.h"

namespace kvtide {

// Read with a large memory, shrink it, look at less while writing, grow when it is full: --strategy.
struct Strategy {
  std::optional<std::int64_t> prefill;  // capacity while the prompt is read
  std::optional<std::int64_t> compact;  // capacity when it has been read
  std::optional<std::int64_t> attend;   // attention size from then on
  std::vector<std::int64_t> expand;     // capacities, one after another, each when the one before is full
  bool empty() const { return !prefill && !compact && !attend && expand.empty(); }
};

// --kv-...: the past as summaries and outliers.
struct ProceduralFlags {
  std::optional<bool> on;
  std::string preset;
  std::string heads = "auto";            // or "even", or a file
  std::optional<std::int64_t> outliers;  // rows of a block but for its summaries
  ProceduralOptions chosen;              // zeros: left open
  bool pin_system = false;               // what stands before the first user message
  std::vector<PosRange> pins;            // ascending, apart
  std::string log;                       // --kv-log: path; empty: none
  bool any = false;                      // some flag was given
};

struct MemoryFlags {
  ProceduralFlags procedural;
  Overflow overflow = Overflow::stop;
  std::optional<std::int64_t> sinks, window;  // of --overflow rolling
  bool keep_prompt = false;                   // of --overflow refill
  Strategy strategy;
  std::string load_state, save_state;  // paths; empty: none
  std::int64_t save_every = 0;         // tokens; 0: only at the end
  bool no_cache = false;
  bool key_type_given = false, value_type_given = false;
};

// kvtide plan: the shape of a model that is not here.
struct PlanRequest {
  bool ladder = false;  // of many budgets
  std::string like;     // a known shape; empty: the numbers below, which otherwise change it
  std::optional<std::int64_t> layers, heads, kv_heads, head_dim, width, hidden, vocab, trained, full_heads;
  double bits = 4.5;  // per weight
};

// kvtide state ACTION FILE ...
struct StateRequest {
  std::string action;
  std::vector<std::string> files;
  std::optional<std::int64_t> capacity, length;
  bool nearest = false;  // truncate: to the checkpoint before the length
  std::string layout;    // of an export: "unified", "per-layer", "stacked"
  std::string dtype;     // of an export: "f32", "f16"; empty: as stored
  bool exact_only = false;
  std::string like;    // of an import: a snapshot of the same model
  std::string tokens;  // of an import: a file with token ids; empty: as the arrays say
};

}  // namespace kvtide
