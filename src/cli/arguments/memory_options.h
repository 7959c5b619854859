// memory_options.h: flags about the KV memory against each other, and what they mean for a session.
#pragma once

#include <cstdint>

#include "cli/arguments/arguments.h"
#include "kvtide/session.h"

namespace kvtide {

// Throws Error(invalid_argument) for flags that contradict one another.
void check_memory_flags(const Arguments& arguments);

// arguments.session with `context` (0: the model's own) and the rolling window that the flags ask for.
// `trained`: the context the model was trained for. Throws Error(invalid_argument) when sinks and window do
// not fit the context.
SessionOptions memory_options(const Arguments& arguments, std::int64_t context, std::int64_t trained);

}  // namespace kvtide
