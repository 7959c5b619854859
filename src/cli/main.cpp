// The program: arguments in, one command, one exit status out. Everything that can go wrong arrives here as
// an Error.
#include <algorithm>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/arguments/help.h"
#include "cli/arguments/parse.h"
#include "cli/commands/cache_folder.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/models_folder.h"
#include "cli/commands/optional_commands.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr CommandEntry kCommandsOfAll[] = {
    {Command::run, run_command},         {Command::chat, chat_command},
    {Command::inspect, inspect_command}, {Command::tokenize, tokenize_command},
    {Command::logits, logits_command},   {Command::state, state_command},
    {Command::heads, heads_command},     {Command::fetch, fetch_command},
    {Command::models, models_command},   {Command::pack, pack_command},
};

bool is_built(Command command) {
  const auto is_it = [&](const CommandEntry& entry) { return entry.command == command; };
  return std::ranges::any_of(optional_commands(), is_it) || std::ranges::any_of(kCommandsOfAll, is_it);
}

// Throws Error(unsupported) for a command that this program was built without.
void check_built(Command command) {
  if (is_built(command)) return;
  throw Error(ErrorCode::unsupported, cat("kvtide ", command_info(command).name,
                                          ": this program was built without it; `make build` builds all"));
}

int dispatch(const Arguments& arguments) {
  for (const std::span<const CommandEntry> entries :
       {optional_commands(), std::span<const CommandEntry>(kCommandsOfAll)})
    for (const CommandEntry& entry : entries)
      if (entry.command == arguments.command && (entry.means == nullptr || entry.means(arguments)))
        return entry.run(arguments);
  return kExitBug;
}

int program(const std::vector<std::string>& words) {
  try {
    install_interrupt_handler();
    Arguments arguments = parse_arguments(words);
    if (arguments.version || arguments.help) {
      write_result(arguments.version       ? version_text()
                   : arguments.has_command ? command_help(arguments.command)
                                           : program_help(is_built));
      return words.empty() ? exit_status(ErrorCode::invalid_argument) : kExitFine;
    }
    check_built(arguments.command);
    find_models(arguments);
    place_packed_weights(arguments);
    return dispatch(arguments);
  } catch (const ReaderGone&) {
    return kExitReaderGone;
  } catch (const Error& error) {
    say(cat("kvtide: ", error.message()));
    return exit_status(error.code());
  } catch (const std::bad_alloc&) {
    say("kvtide: out of memory: a smaller context (-c), chunk (--prefill-chunk) or model needs less");
    return exit_status(ErrorCode::out_of_memory);
  } catch (const std::exception& bug) {
    say(cat("kvtide: a bug: ", bug.what()));
    return kExitBug;
  }
}

}  // namespace
}  // namespace kvtide

int main(int argc, char** argv) {
  return kvtide::program(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
