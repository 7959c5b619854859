// command.h: the commands of the program and their names.
#pragma once

#include <string_view>

namespace kvtide {

enum class Command : unsigned { run, chat, ppl, bench, inspect, tokenize, logits, state, heads };

struct CommandInfo {
  Command command;
  std::string_view name;
  std::string_view what;   // one line for --help
  std::string_view usage;  // behind "kvtide <name>"
};

inline constexpr CommandInfo kCommands[] = {
    {Command::run, "run", "read a prompt and continue it", "-m MODEL [-p TEXT] [-f FILE] [flags]"},
    {Command::chat, "chat", "talk with a model; earlier turns stay in its memory", "-m MODEL [flags]"},
    {Command::ppl, "ppl", "perplexity of a text", "-m MODEL -f FILE [flags]"},
    {Command::bench, "bench", "speed at several depths, as a share of the machine's limits",
     "-m MODEL [flags]"},
    {Command::inspect, "inspect", "what a model file holds and what its memory would cost", "FILE [--json]"},
    {Command::tokenize, "tokenize", "the tokens of a text", "-m MODEL [-p TEXT | -f FILE] [flags]"},
    {Command::logits, "logits", "write the logits of a text as a NumPy file",
     "-m MODEL [-p TEXT | -f FILE] --out F.npy"},
    {Command::state, "state", "look at snapshots, resize them, hand them on",
     "info|diff|truncate|compact|expand|export|import FILE [flags]"},
    {Command::heads, "heads", "which heads copy from the past: the table of a procedural memory",
     "-m MODEL [--out FILE]"},
};

constexpr const CommandInfo& command_info(Command command) {
  return kCommands[static_cast<unsigned>(command)];
}

}  // namespace kvtide
