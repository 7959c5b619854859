// inspect_shards.h: what `kvtide inspect` and `kvtide plan` say of a folder of shards: its files, and what the
// states of a sequence take, before one is made. Reads the manifest only.
#pragma once

#include "cli/arguments/arguments.h"

namespace kvtide {

int inspect_shards(const Arguments& arguments);
// For the length of --ctx. Throws Error(invalid_argument) for a budget: the states of shards keep every row.
int plan_shards(const Arguments& arguments);

}  // namespace kvtide
