// cache_folder.h: where the program keeps what it could have again: hashes of model files, packed weights,
// models that were fetched.
#pragma once

#include <string>

#include "cli/arguments/arguments.h"

namespace kvtide {

// $XDG_CACHE_HOME/kvtide, or ~/.cache/kvtide; made when it is missing. Empty with --no-cache, and where no
// such folder can be made: a cache only saves time.
std::string cache_folder(const Arguments& arguments);

// Tells loading where packed weights are kept: in `weights` there, which is made when the first are.
void place_packed_weights(Arguments& arguments);

// The same place, whether it is there or not; empty where the environment names none.
std::string cache_place();

}  // namespace kvtide
