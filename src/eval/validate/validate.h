// validate.h: whether a model that keeps a state computes what its reference computes, and if not, what is
// wrong.
//
// The text is read in calls of several lengths, layers fed with the reference's inputs (isolated) and in a
// chain. Every layer and token is compared by the change the layer makes and by the sum; then the state's
// rows, the logits, and what happens to a state (rows that are no part of it, tokens taken back, copies, a
// full memory). When something differs, evidence is gathered: which calls, tokens, rows and heads differ and
// what they equal instead. Ownership: none kept. Thread rules: one caller at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "eval/validate/reference.h"
#include "eval/validate/report.h"
#include "eval/validate/tested_model.h"

namespace kvtide {

struct ValidateOptions {
  std::vector<std::int64_t> chunks = {1, 2, 3, 4, 7};
  double gate = 0.9999;           // cosine per layer and token
  double apart_gate = 0.9999;     // of special tokens and tiny embeddings
  double row_gate = 0.9999;       // cosine of rows of the state
  std::int64_t free_tokens = 16;  // greedy tokens of the free run; 0: none
  std::vector<TokenId> special;   // ids that are listed apart
  std::function<bool(double share, std::string_view what)> progress;  // false stops: Error(cancelled)
};

// Throws Error: invalid_argument (shapes that do not fit each other, too short a text), cancelled, and what
// the reference throws. What the model under test throws is a finding.
ValidationReport validate(TestedModel& model, Reference& reference, std::span<const TokenId> tokens,
                          const ValidateOptions& options = {});

}  // namespace kvtide
