// budget.h: what a procedural memory costs at most, and which parameters a number of bytes allows.
//
// Pure functions of a spec: planning, picking and accounting ask here, so that they cannot disagree.
#pragma once

#include <string>

#include "state/procedural/head_rows.h"
#include "state/spec/spec.h"

namespace kvtide {

// A memory that consolidates has fewer blocks than this; with so many two become one.
inline constexpr int kMostLevels = 8;  // of consolidation
inline constexpr std::int64_t most_blocks(int levels) { return 8 + 6 * (levels - 1); }
// Of the rows of a full head so large a share is the newest text, whole; the rest thins out.
inline constexpr std::int64_t kIntactEighths = 4;

// What a head's rows are, by its plan.
HeadRows::Kind rows_kind(const ProceduralSpec& spec, const HeadPlan& plan);

// Does it take more bytes with every token, however many were read?
bool grows(const ProceduralSpec& spec);

// Layers with a window of their own hold the rows of a step beside it: inside a budget that room is worth more than
// longer steps, and inside a small one more than long ones. Shorter ones are planned for as many tokens, since which
// memory a budget gives must not depend on steps.
std::int64_t longest_step_beside_windows(const KvSpec& spec);
// Tokens of the largest step.
std::int64_t longest_step(const KvSpec& spec);
// Tokens of a block that are read again in one step (ranking by repetition); 0: none are. What is kept depends on it, so
// it does not depend on the steps of a session. Their rows come on top meanwhile, in one layer at a time.
std::int64_t repeated_tokens(const KvSpec& spec);

// Pages of so many rows in the layer that takes most.
std::int64_t bytes_of_largest_layer(const KvSpec& spec, const RowStage& types, std::int64_t rows);

// The most that a state of this spec (procedural) holds at any moment while it reads `tokens` tokens; 0:
// without end. Stages apart.
ProceduralBytes most_bytes(const KvSpec& spec, Pos tokens);
// The same for all that may be read when the spec expects so many tokens (0: no end known), or `position` if
// that is more: nothing keeps a text from being longer, so only a memory that grows is planned for that many.
ProceduralBytes planned_bytes(const KvSpec& spec, Pos position = 0);

// In messages. A budget as it was given: "64M", or in bytes.
std::string given_bytes(std::int64_t bytes);
// A budget to ask for that holds so many bytes: "11M", and "353K" below one MiB.
std::string enough_for(std::int64_t bytes);

// Why the spec's budget does not hold a memory that has read `position` tokens; "" when it does, or when there
// is none.
std::string why_not_within_budget(const KvSpec& spec, Pos position = 0);

}  // namespace kvtide
