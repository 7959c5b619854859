// boot_id.h: which start of the machine this is.
#pragma once

#include <string>

namespace kvtide {

// A text that is the same in all processes until the system is started anew; empty where it tells none. What was
// written since then is in the system's memory or on the disk: a loss of power lies before it.
std::string boot_id();

}  // namespace kvtide
