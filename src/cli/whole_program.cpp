// What the whole program has beyond the small one.
#include "cli/commands/optional_commands.h"
#include "cli/optional/inspect_shards.h"
#include "cli/optional/optional_actions.h"
#include "shards/shard_folder.h"

namespace kvtide {
namespace {

bool of_shards(const Arguments& arguments) {
  return !arguments.model.empty() && is_shard_folder(arguments.model);
}

constexpr CommandEntry kOptional[] = {
    {Command::ppl, ppl_command},
    {Command::bench, bench_command},
    {Command::copytest, copytest_command},
    {Command::recall, recall_command},
    {Command::ruler, ruler_command},
    {Command::table, table_command},
    {Command::plan, plan_shards, of_shards},
    {Command::plan, plan_command},
    {Command::inspect, inspect_shards, of_shards},
    {Command::shard, shard_command},
    {Command::coreml, coreml_command},
    {Command::validate, validate_command},
    {Command::serve, serve_command},
};

}  // namespace

std::span<const CommandEntry> optional_commands() { return kOptional; }

}  // namespace kvtide
