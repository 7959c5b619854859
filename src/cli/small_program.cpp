// The small program, which the demo builds: it reads, answers, chats and keeps snapshots. The floors serve, coreml, validate
// and shards are not needed for that.
#include "cli/commands/optional_commands.h"

namespace kvtide {

std::span<const CommandEntry> optional_commands() { return {}; }

}  // namespace kvtide
