// drift_json.h: what shadow mode measured, as JSON: docs/cli.md says what the members are.
//
// Pure functions.
#pragma once

#include "base/json/json.h"
#include "kvtide/procedural.h"

namespace kvtide {

Json drift_object(const Drift& drift);  // all but the heads
Json drift_heads(const Drift& drift);   // one by one

}  // namespace kvtide
