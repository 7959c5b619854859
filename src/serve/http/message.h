// message.h: requests and answers of HTTP as plain values (kvtide/server.h), and secrets in them.
//
// Thread rules: pure functions.
#pragma once

#include <string_view>

#include "kvtide/server.h"

namespace kvtide::serve {

// Whether the two are equal, in time that depends on the length of `given` alone.
bool same_secret(std::string_view given, std::string_view wanted);

}  // namespace kvtide::serve
