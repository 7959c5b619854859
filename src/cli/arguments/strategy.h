// strategy.h: the value of --strategy.
#pragma once

#include "cli/arguments/flag_values.h"
#include "cli/arguments/memory_flags.h"

namespace kvtide {

// "prefill=512,compact=256,attend=128,expand=512": any of them, expand also several times. Throws
// Error(invalid_argument) that names the word and what would be right.
Strategy parse_strategy(const Given& given);

}  // namespace kvtide
