// coreml_actions.h: what `kvtide coreml` does, a function for each action. Each returns the exit status; failures throw Error.
#pragma once

#include "cli/arguments/arguments.h"

namespace kvtide {

int coreml_inspect(const Arguments& arguments);
int coreml_lint(const Arguments& arguments);
int coreml_run(const Arguments& arguments);
int coreml_export(const Arguments& arguments);
int coreml_bench(const Arguments& arguments);

}  // namespace kvtide
