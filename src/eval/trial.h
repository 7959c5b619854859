// trial.h: one memory on one text: how fast it reads and goes on, what it occupies, and whether its own text
// repeats itself.
//
// Thread rules: those of the session, which is cleared first. Units: tokens per second, milliseconds, bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kvtide/session.h"

namespace kvtide {

struct TrialOptions {
  std::int64_t continuation = 256;             // tokens written greedily behind the text, ends ignored
  std::function<std::int64_t()> resident;      // bytes of the process now; none: not sampled
  std::function<bool(double share)> progress;  // false stops with Error(cancelled)
};

struct Trial {
  double prefill_tok_s = 0.0, decode_tok_s = 0.0;
  double seal_ms_token = 0.0;  // of the text; 0 for memories that seal nothing
  std::int64_t kv_bytes = 0;   // at the end
  std::int64_t kv_peak = 0;    // the most that was seen or, of a procedural memory, that there was
  std::int64_t rss_bytes = 0;  // at the end
  Pos filled_at = 0;           // tokens read when the memory first held 95% of its peak
  std::int64_t rss_swing = 0;  // largest less smallest resident set from then on, while reading
  double distinct_1 = 0.0, distinct_3 = 0.0;  // of the continuation
};

Trial try_memory(Session& session, std::span<const TokenId> text, const TrialOptions& options = {});

// How many of the runs of n tokens are different ones, as a share; 1 for a text shorter than n. A text that
// goes round in circles comes near 0.
double distinct_runs(std::span<const TokenId> tokens, std::size_t n);

}  // namespace kvtide
