// command_flags.cpp: which groups of flags each command takes.
#include <initializer_list>

#include "cli/arguments/flag_groups.h"

namespace kvtide {
namespace {

using Groups = std::vector<FlagGroup>;

// Of every command that makes a session as the flags say.
Groups session_groups() {
  return {exact_flags(),   cache_type_flags(), thread_flags(),     chunk_flags(),     kernel_flags(),
          mapping_flags(), attention_flags(),  procedural_flags(), head_table_flags()};
}

Groups joined(Groups first, const Groups& then, std::initializer_list<FlagGroup> last = {}) {
  first.insert(first.end(), then.begin(), then.end());
  first.insert(first.end(), last);
  return first;
}

Groups groups_of(Command command) {
  switch (command) {
    case Command::run:
      return joined(
          {model_flags(), prompt_flags(), file_flags(), run_flags(), context_flags(), answer_flags()},
          session_groups(), {snapshot_flags(), shadow_flags(), seal_log_flags()});
    case Command::chat:
      return joined({model_flags(), chat_flags(), context_flags(), answer_flags()}, session_groups(),
                    {snapshot_flags(), shadow_flags(), seal_log_flags()});
    case Command::ppl:
      return joined({model_flags(), file_flags(), context_flags(), ppl_flags(), json_flags()},
                    session_groups(), {shadow_flags()});
    case Command::bench:
      return joined({model_flags(), file_flags(), bench_flags(), json_flags()}, session_groups());
    case Command::inspect:
      return {model_flags(), json_flags(), mapping_flags()};
    case Command::tokenize:
      return {model_flags(), prompt_flags(), file_flags(), json_flags(), mapping_flags()};
    case Command::logits:
      return joined(
          {model_flags(), prompt_flags(), file_flags(), context_flags(), logits_flags(), out_flags()},
          session_groups());
    case Command::state:
      return {state_flags(), out_flags(), json_flags()};
    case Command::heads:
      return {model_flags(), out_flags(), thread_flags(), mapping_flags()};
    case Command::copytest:
      return joined({model_flags(), file_flags(), copytest_flags(), json_flags()}, session_groups());
    case Command::recall:
      return joined({model_flags(), file_flags(), lengths_flags(), recall_flags(), json_flags()},
                    session_groups());
    case Command::table:
      return {model_flags(), file_flags(),   lengths_flags(), table_flags(),  json_flags(),
              exact_flags(), thread_flags(), chunk_flags(),   kernel_flags(), mapping_flags()};
    case Command::plan:
      return {model_flags(),  plan_flags(),    json_flags(),      cache_type_flags(),
              thread_flags(), mapping_flags(), procedural_flags()};
    case Command::shard:
      return {model_flags(), shard_flags(),  prompt_flags(), file_flags(),
              json_flags(),  thread_flags(), kernel_flags()};
    case Command::validate:
      return {model_flags(), validate_flags(),   prompt_flags(), file_flags(),   json_flags(),
              exact_flags(), cache_type_flags(), thread_flags(), kernel_flags(), mapping_flags()};
    case Command::fetch:
      return {models_folder_flags()};
    case Command::models:
      return {models_folder_flags(), json_flags()};
  }
  return {};
}

}  // namespace

std::vector<Flag> flags_of(Command command) {
  std::vector<Flag> flags;
  for (const FlagGroup& group : joined(groups_of(command), {help_flags()}))
    flags.insert(flags.end(), group.begin(), group.end());
  return flags;
}

}  // namespace kvtide
