// heads_file.h: the text of a head table (kvtide/heads.h), wherever it comes from.
#pragma once

#include <string>
#include <string_view>

#include "kvtide/procedural.h"

namespace kvtide {

// Throws Error(bad_format) with `name` and the line.
HeadTable parse_heads(std::string_view text, const std::string& name);

}  // namespace kvtide
