// stages.h: how a memory with a budget and no known end begins: every row exact, then in eight bits, while they fit.
//
// Pure functions of a spec. Where a stage ends is a position, so what a state holds depends on its tokens alone.
#pragma once

#include <vector>

#include "state/spec/spec.h"

namespace kvtide {

// Rows that are there twice while a layer is rewritten in place, sinks apart.
inline constexpr Pos kRewrittenAtOnce = 512;

// The stages of a procedural spec whose options ask for them (exact_first): as long as the budget holds them, with
// what is there twice while rows are rewritten or sealed. Empty: blocks are sealed as they leave the window.
std::vector<RowStage> row_stages(const KvSpec& spec);

// Can rows of these types be rewritten in q8_0, and do they take less then?
bool may_narrow(const KvSpec& spec);

// The most that is held while the stages of a spec last; 0: it has none.
std::int64_t bytes_of_stages(const KvSpec& spec);

// The types of the newest rows that a memory has when its stages are over.
inline RowStage window_types(const KvSpec& spec) {
  if (spec.procedural && spec.procedural->window_type == WindowType::q8_0)
    return {DType::q8_0, DType::q8_0, 0};
  const bool staged = spec.procedural && !spec.procedural->stages.empty();
  return staged ? spec.procedural->stages.front() : RowStage{spec.key_type, spec.value_type, 0};
}
// Those of the rows of a text of so many tokens.
inline RowStage row_types_at(const KvSpec& spec, Pos position) {
  const RowStage* stage = spec.procedural ? stage_at(*spec.procedural, position) : nullptr;
  return stage != nullptr ? *stage : window_types(spec);
}

inline bool has_row_types(const KvSpec& spec, const RowStage& types) {
  return spec.key_type == types.key_type && spec.value_type == types.value_type;
}
inline void set_row_types(KvSpec& spec, const RowStage& types) {
  spec.key_type = types.key_type;
  spec.value_type = types.value_type;
}

}  // namespace kvtide
