// plan_ladder.h: kvtide plan --ladder: what each of many budgets buys, from a fortieth of the full cache to all of it.
#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"
#include "cli/optional/measured_losses.h"
#include "eval/plan.h"

namespace kvtide {

struct LadderLine {
  std::int64_t budget = 0;
  std::string refused;  // why nothing is kept; empty: the plan
  MemoryPlan plan;
  double write_tok_s = 0.0;          // at most, at the end of the text
  std::optional<ExpectedLoss> loss;  // nullopt: it was not measured
};

// Is every row of the text kept as it was written?
bool is_exact(const MemoryPlan& plan, std::int64_t tokens);
// What a plan's text loses, as far as it was measured; nothing where every row is exact, or where there is no measure.
std::optional<ExpectedLoss> loss_of(const ModelConfig& config, const MemoryPlan& plan,
                                    std::string_view model_hash, std::int64_t tokens);
// Beyond what the model was trained for a full cache is no measure: a sentence and a line feed; or nothing.
std::string no_measure_words(const ModelConfig& config, std::int64_t tokens);
// As "expected_kl", "expected_dppl" and "measured" (model, tokens); nothing without a loss.
void set_loss(Json& json, const std::optional<ExpectedLoss>& loss);
// With whom it was measured, if with another model or another length: a sentence and a line feed; or nothing.
std::string measured_words(const ExpectedLoss& loss, std::int64_t tokens);

// Of a text of `tokens`; options.procedural is set and its budget is not looked at. model_hash: of the model file, or empty.
// read_bytes: weights that a token reads.
std::vector<LadderLine> plan_ladder(const ModelConfig& config, const SessionOptions& options,
                                    std::string_view model_hash, std::int64_t tokens, double read_bytes);

std::string ladder_text(const ModelConfig& config, const std::vector<LadderLine>& ladder,
                        std::int64_t tokens);
std::string ladder_json(const std::vector<LadderLine>& ladder, const std::string& model, std::int64_t tokens);

}  // namespace kvtide
