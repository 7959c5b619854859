// parse.h: the command line as checked values. Nothing after this file reads argv.
//
// Flags are described once (flags.h); parsing, --help and the hints for misspelt flags all use those tables.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments/arguments.h"

namespace kvtide {

// words: the command and what follows it. Throws Error(invalid_argument) that names the flag, what is wrong
// and what would be right.
Arguments parse_arguments(const std::vector<std::string>& words);

}  // namespace kvtide
