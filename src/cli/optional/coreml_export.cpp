// kvtide coreml export: stateful Core ML packages of a model that kvtide loads.
#include <filesystem>

#include "base/json/json.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/inspect_folder.h"
#include "cli/commands/interrupt.h"
#include "cli/optional/coreml_actions.h"
#include "cli/output/terminal.h"
#include "kvtide/coreml.h"

namespace kvtide {
namespace {

std::int64_t bytes_below(const std::string& folder) {
  std::int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<std::int64_t>(entry.file_size());
  return bytes;
}

}  // namespace

int coreml_export(const Arguments& arguments) {
  const Stopwatch watch;
  CoremlExport how = arguments.coreml.how;
  how.threads = arguments.session.threads;
  std::int64_t packages = 0;
  how.on_package = [&](const std::string&) {
    stop_if_interrupted("nothing was exported");
    ++packages;
  };
  export_coreml(arguments.model, arguments.out, how);
  const std::int64_t bytes = bytes_below(arguments.out);
  if (arguments.json) {
    Json result = Json::object();
    result.set("path", arguments.out)
        .set("packages", packages)
        .set("bytes", bytes)
        .set("seconds", watch.seconds());
    write_result(result.text() + "\n");
    return kExitFine;
  }
  say(cat(shown(arguments.out), ": ", packages, packages == 1 ? " package, " : " packages, ",
          bytes_text(bytes), ", in ", time_text(watch.seconds())));
  return kExitFine;
}

}  // namespace kvtide
