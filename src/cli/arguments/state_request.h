// state_request.h: what `kvtide state` was asked to do, checked against what its actions take.
#pragma once

#include "cli/arguments/arguments.h"

namespace kvtide {

// Throws Error(invalid_argument) naming the action, file or flag that is missing or too much.
void check_state_request(const Arguments& arguments);

}  // namespace kvtide
