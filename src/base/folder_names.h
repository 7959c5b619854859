// folder_names.h: what a folder holds.
#pragma once

#include <string>
#include <vector>

namespace kvtide {

// The names in a folder, sorted, without "." and ".."; none when it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace kvtide
