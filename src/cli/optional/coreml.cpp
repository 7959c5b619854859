// kvtide coreml: Core ML packages without a Mac. The actions have a file each.
#include "base/refuse.h"
#include "base/text.h"
#include "cli/optional/coreml_actions.h"
#include "cli/optional/optional_actions.h"

namespace kvtide {

int coreml_command(const Arguments& arguments) {
  if (arguments.coreml.action == "inspect") return coreml_inspect(arguments);
  if (arguments.coreml.action == "lint") return coreml_lint(arguments);
  if (arguments.coreml.action == "run") return coreml_run(arguments);
  if (arguments.coreml.action == "export") return coreml_export(arguments);
  if (arguments.coreml.action == "bench") return coreml_bench(arguments);
  refuse(cat("kvtide coreml: there is no action ", quoted(arguments.coreml.action)));
}

}  // namespace kvtide
