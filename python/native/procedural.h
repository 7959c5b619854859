// procedural.h: the options of a procedural memory as a dict, and what it holds as another.
//
// Thread rules: under the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <vector>

#include "kvtide/procedural.h"

namespace kvtide::python {

// Keys are the fields of ProceduralOptions; pins: a list of (first, last); heads: a list of [layers * kv_heads] (induction, share,
// output_norm, worth) with kv_heads beside it; worth may be left out. Throws Error(invalid_argument) naming a key that there
// is not, or a value that it cannot have.
ProceduralOptions procedural_options(const nanobind::dict& wanted);

// The keys that there are.
std::vector<std::string> procedural_option_names();

// None without a procedural memory.
nanobind::object procedural_dict(const std::optional<ProceduralCounts>& counts);

}  // namespace kvtide::python
