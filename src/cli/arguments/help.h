// help.h: the texts of --help and --version.
#pragma once

#include <string>

#include "cli/arguments/command.h"

namespace kvtide {

std::string program_help();  // at most 24 lines of 100 characters: a screen
std::string command_help(Command command);
std::string version_text();

}  // namespace kvtide
