// flags.h: what a flag is, and the flags of each command.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/command.h"
#include "cli/arguments/flag_values.h"

namespace kvtide {

struct Flag {
  std::string_view short_name;  // "-ctk"; may be empty
  std::string_view name;        // "--cache-type-k"
  std::string_view value;       // what stands for the value in the help; empty: a switch without one
  std::string_view help;
  void (*set)(Arguments& arguments, const Given& given);  // throws Error(invalid_argument)
};

// Flags that the same commands take.
using FlagGroup = std::span<const Flag>;

// The flags that a command takes, in the order of its help.
std::vector<Flag> flags_of(Command command);

}  // namespace kvtide
