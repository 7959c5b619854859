// shard_request.h: what `kvtide shard` was asked to do.
#pragma once

#include <string>
#include <vector>

#include "kvtide/shard.h"

namespace kvtide {

struct Arguments;

struct ShardRequest {
  std::string action;  // "export", "run"
  ShardExport how;     // of an export
  bool scales_given = false, changes_export = false;
  bool draft = false;  // of a run
};

// Throws Error(invalid_argument) naming the action or flag that is missing or too much.
void check_shard_request(const Arguments& arguments);

}  // namespace kvtide
