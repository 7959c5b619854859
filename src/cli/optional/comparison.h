// comparison.h: what a comparison of memories needs, as the flags ask: the policy that is judged, and a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "kvtide/model.h"

namespace kvtide {

// The policy: the memory that the flags ask for, for texts of `tokens` tokens. heads: of a procedural memory.
SessionOptions policy_for(const Arguments& arguments, const Model& model, const HeadTable& heads,
                          std::int64_t tokens);

// The head table where the flags ask for a procedural memory; empty otherwise.
HeadTable heads_for(const Arguments& arguments, const Model& model);

// -f FILE as plain text, or prose made here when there is none; at least `tokens` tokens. Throws
// Error(invalid_argument) that names both numbers when the text is shorter.
std::vector<TokenId> filler_for(const Arguments& arguments, const Model& model, std::int64_t tokens);

}  // namespace kvtide
