// report.h: what a validation found: figures per layer and token, the checks, and findings with their causes.
//
// Plain data: made by validate(), shown by the command, the HTML report and Python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

// A finding says what was measured and what that points at. `cause` is a stable name (docs/validator.md).
struct Finding {
  std::string cause;
  std::string check;         // that found it
  std::optional<int> layer;  // first one that is wrong; nullopt: no single layer
  std::optional<Pos> token;  // first one that is wrong
  std::string calls;         // how the text was cut: "calls of 4"; empty: in whatever way
  double cosine = 1.0;       // the worst
  std::string what;          // sentences: what was seen
  std::string advice;        // a sentence: where to look
};

enum class Outcome { passed, failed, skipped };
const char* outcome_name(Outcome outcome) noexcept;

struct CheckResult {
  std::string name;
  Outcome outcome = Outcome::passed;
  std::string detail;  // figures, or why it was skipped
};

// Of every layer and token: [layers][tokens]. Change: what the layer adds; sum: the stream behind it.
struct LayerTable {
  std::int64_t layers = 0, tokens = 0;
  std::vector<float> change_cosine, change_error, sum_cosine, sum_error;  // error: max-abs
};

// The text read in calls of so many tokens.
struct ScheduleResult {
  std::string name;
  std::vector<std::int64_t> calls;
  LayerTable isolated;                   // every layer fed with the reference's input; empty: not measured
  LayerTable chained;                    // every layer fed by the one before
  double kl_mean = 0.0, kl_worst = 0.0;  // nats, KL(reference || model)
  double logits_cosine = 1.0, logits_error = 0.0;
  std::int64_t top_same = 0, top_asked = 0;  // tokens whose likeliest next token is the reference's
  bool same_bits = false;                    // as the first schedule, in all that came out
};

struct TokenNote {
  Pos token = 0;
  std::string why;  // "special token", "tiny embedding"
  double cosine = 1.0;
};

struct ValidationReport {
  bool passed = true;
  std::string model, reference;
  std::vector<TokenId> tokens;
  double gate = 0.0;        // cosine per layer and token
  double apart_gate = 0.0;  // of the tokens that are listed apart
  std::vector<ScheduleResult> schedules;
  std::vector<TokenNote> apart;
  std::vector<CheckResult> checks;
  std::vector<Finding> findings;  // the likeliest cause first
};

}  // namespace kvtide
