// The program: arguments in, one command, one exit status out. Everything that can go wrong arrives here as
// an Error.
#include <exception>
#include <new>
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
#include "cli/output/terminal.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

int dispatch(const Arguments& arguments) {
  switch (arguments.command) {
    case Command::run:
      return run_command(arguments);
    case Command::chat:
      return chat_command(arguments);
    case Command::ppl:
      return ppl_command(arguments);
    case Command::bench:
      return bench_command(arguments);
    case Command::inspect:
      return inspect_command(arguments);
    case Command::tokenize:
      return tokenize_command(arguments);
    case Command::logits:
      return logits_command(arguments);
    case Command::state:
      return state_command(arguments);
    case Command::heads:
      return heads_command(arguments);
    case Command::copytest:
      return copytest_command(arguments);
    case Command::recall:
      return recall_command(arguments);
    case Command::ruler:
      return ruler_command(arguments);
    case Command::table:
      return table_command(arguments);
    case Command::plan:
      return plan_command(arguments);
    case Command::shard:
      return shard_command(arguments);
    case Command::coreml:
      return coreml_command(arguments);
    case Command::validate:
      return validate_command(arguments);
    case Command::fetch:
      return fetch_command(arguments);
    case Command::models:
      return models_command(arguments);
    case Command::pack:
      return pack_command(arguments);
    case Command::serve:
      return serve_command(arguments);
  }
  return kExitBug;
}

int program(const std::vector<std::string>& words) {
  try {
    install_interrupt_handler();
    Arguments arguments = parse_arguments(words);
    if (arguments.version || arguments.help) {
      write_result(arguments.version       ? version_text()
                   : arguments.has_command ? command_help(arguments.command)
                                           : program_help());
      return words.empty() ? exit_status(ErrorCode::invalid_argument) : kExitFine;
    }
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
