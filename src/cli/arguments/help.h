// help.h: the texts of --help and --version.
#pragma once

#include <functional>
#include <string>

#include "cli/arguments/command.h"

namespace kvtide {

// At most 24 lines of 100 characters: a screen. `is_built`: whether this program has a command.
std::string program_help(const std::function<bool(Command)>& is_built);
std::string command_help(Command command);
std::string version_text();

}  // namespace kvtide
