// procedural_flags.h: the --kv-... flags as options of a procedural memory.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/arguments/arguments.h"
#include "kvtide/model.h"

namespace kvtide {

// Whether the flags ask for a procedural memory.
bool wants_procedural(const Arguments& arguments);

// What they ask for, without the head table; throws Error(invalid_argument) for flags that contradict one
// another.
ProceduralOptions procedural_options(const Arguments& arguments);

// The positions that --kv-pin names; of `system` those that the chat template puts before the first message
// of the user. Throws Error(invalid_argument) when there is no template.
std::vector<PosRange> pinned_positions(const Arguments& arguments, const Model& model);

// The head table of --kv-heads: shipped, remembered, measured now (and remembered), or read from a file.
HeadTable choose_heads(const Arguments& arguments, const Model& model);

}  // namespace kvtide
