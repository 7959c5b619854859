// plan_ladder.h: kvtide plan --ladder: what each of many budgets buys, from a fortieth of the full cache to all of it.
#pragma once

#include <string>
#include <vector>

#include "eval/plan.h"

namespace kvtide {

struct LadderLine {
  std::int64_t budget = 0;
  std::string refused;  // why nothing is kept; empty: the plan
  MemoryPlan plan;
  double write_tok_s = 0.0;  // at most, at the end of the text
};

// Of a text of `tokens`; options.procedural is set and its budget is not looked at. read_bytes: weights that a token reads.
std::vector<LadderLine> plan_ladder(const ModelConfig& config, const SessionOptions& options,
                                    std::int64_t tokens, double read_bytes);

std::string ladder_text(const std::vector<LadderLine>& ladder, std::int64_t tokens);
std::string ladder_json(const std::vector<LadderLine>& ladder, const std::string& model, std::int64_t tokens);

}  // namespace kvtide
