#include "cli/arguments/help.h"

#include <cstddef>
#include <string_view>

#include "base/text.h"
#include "cli/arguments/flags.h"
#include "kernels/kernels.h"

namespace kvtide {
namespace {

std::string flag_line(const Flag& flag) {
  constexpr std::size_t kColumn = 28;
  std::string spelling = cat(flag.short_name, flag.short_name.empty() ? "    " : ", ", flag.name);
  if (!flag.value.empty()) spelling += cat(" ", flag.value);
  if (spelling.size() < kColumn) spelling.resize(kColumn, ' ');
  return cat("  ", spelling, "  ", flag.help, "\n");
}

}  // namespace

std::string program_help(const std::function<bool(Command)>& is_built) {
  std::string text = "kvtide: language models on a CPU, with a KV cache of the size that you allow\n";
  std::string missing;
  for (const CommandInfo& info : kCommands) {
    if (!is_built(info.command)) {
      missing += cat(missing.empty() ? "" : ", ", info.name);
      continue;
    }
    std::string name(info.name);
    name.resize(10, ' ');
    text += cat("  ", name, info.what, "\n");
  }
  if (!missing.empty()) text += cat("`make build` adds: ", missing, "\n");
  return text +
         "Examples: kvtide fetch smollm2; kvtide run -m smollm2 -f book.txt -p \"The sea is\" --kv-budget "
         "64M\n"
         "`kvtide COMMAND --help` shows its flags. Results go to stdout, all else to stderr. More: "
         "docs/cli.md\n";
}

std::string command_help(Command command) {
  const CommandInfo& info = command_info(command);
  std::string text = cat("kvtide ", info.name, ": ", info.what, "\n\n  kvtide ", info.name, " ", info.usage,
                         "\n  Example: kvtide ", info.name, " ", info.example, "\n");
  std::string_view title;
  for (const FlagGroup& group : groups_of(command)) {
    if (title != title_of(group.section)) {
      title = title_of(group.section);
      text += cat("\n", title, ":\n");
    }
    for (const Flag& flag : group.flags) text += flag_line(flag);
  }
  return text;
}

std::string version_text() {
  std::string kernels;
  for (const Kernels* table : available_kernels()) kernels += cat(kernels.empty() ? "" : ", ", table->isa);
  return cat("kvtide ", KVTIDE_VERSION, "\nkernels for this processor: ", kernels, "\n");
}

}  // namespace kvtide
