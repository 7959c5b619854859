// refuse.h: how a function says that an argument cannot be had.
#pragma once

#include <string>

#include "kvtide/error.h"

namespace kvtide {

// Throws Error(invalid_argument): what the caller asked for cannot be had. `why` names the argument and what would be right.
[[noreturn]] inline void refuse(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }

}  // namespace kvtide
