// optional_actions.h: the commands that judge memories, and those that stand on the floors serve, coreml, validate and
// shards. Each returns the exit status; failures throw Error.
#pragma once

#include "cli/arguments/arguments.h"

namespace kvtide {

int ppl_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int copytest_command(const Arguments& arguments);
int recall_command(const Arguments& arguments);
int ruler_command(const Arguments& arguments);
int table_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int shard_command(const Arguments& arguments);
int coreml_command(const Arguments& arguments);
int validate_command(const Arguments& arguments);
int serve_command(const Arguments& arguments);

}  // namespace kvtide
