// procedural_options.h: the --kv-... flags as options of a procedural memory.
#pragma once

#include "cli/arguments/arguments.h"

namespace kvtide {

// Whether the flags ask for a procedural memory.
bool wants_procedural(const Arguments& arguments);

// What they ask for, without the head table; throws Error(invalid_argument) for flags that contradict one
// another.
ProceduralOptions procedural_options(const Arguments& arguments);

}  // namespace kvtide
