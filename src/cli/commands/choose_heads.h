// choose_heads.h: the head table of a procedural memory, as --kv-heads asks for it.
#pragma once

#include <optional>

#include "cli/arguments/arguments.h"
#include "kvtide/model.h"

namespace kvtide {

// The head table of --kv-heads: shipped, remembered, measured now (and remembered), or read from a file.
HeadTable choose_heads(const Arguments& arguments, const Model& model);

// Likewise where it is known without measuring.
std::optional<HeadTable> known_heads(const Arguments& arguments, const Model& model);

}  // namespace kvtide
