// commands.h: one function per command, one file per function. Each returns the exit status; failures throw
// Error.
#pragma once

#include "cli/arguments/arguments.h"

namespace kvtide {

int run_command(const Arguments& arguments);
int chat_command(const Arguments& arguments);
int inspect_command(const Arguments& arguments);
int tokenize_command(const Arguments& arguments);
int logits_command(const Arguments& arguments);
int state_command(const Arguments& arguments);
int heads_command(const Arguments& arguments);
int fetch_command(const Arguments& arguments);
int models_command(const Arguments& arguments);
int pack_command(const Arguments& arguments);

}  // namespace kvtide
