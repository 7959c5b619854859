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

// Where a flag stands in the help of a command: what everybody needs first.
enum class Section { basics, snapshots, words, memory, compression, speed, output };

std::string_view title_of(Section section);

// Flags that the same commands take.
struct FlagGroup {
  Section section;
  std::span<const Flag> flags;
};

// The groups that a command takes, by section.
std::vector<FlagGroup> groups_of(Command command);
// Their flags.
std::vector<Flag> flags_of(Command command);

}  // namespace kvtide
