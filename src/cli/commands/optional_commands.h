// optional_commands.h: the commands that a program may be built without.
//
// The whole program and the small one differ in the file that they take this list from: whole_program.cpp or
// small_program.cpp.
#pragma once

#include <span>

#include "cli/arguments/arguments.h"

namespace kvtide {

struct CommandEntry {
  Command command;
  int (*run)(const Arguments& arguments);  // returns the exit status; failures throw Error
  bool (*means)(const Arguments& arguments) =
      nullptr;  // of which arguments this is the command; nullptr: of all
};

// Looked at before the commands that every program has.
std::span<const CommandEntry> optional_commands();

}  // namespace kvtide
