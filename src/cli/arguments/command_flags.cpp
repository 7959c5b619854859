// command_flags.cpp: which groups of flags each command takes.
#include <algorithm>
#include <initializer_list>

#include "cli/arguments/flag_groups.h"

namespace kvtide {
namespace {

using Groups = std::vector<FlagGroup>;

// Of every command that makes a session as the flags say.
Groups session_groups() {
  return {exact_flags(),   budget_flags(),    preset_flags(),     cache_type_flags(),
          thread_flags(),  chunk_flags(),     kernel_flags(),     mapping_flags(),
          weights_flags(), attention_flags(), procedural_flags(), head_table_flags()};
}

Groups joined(Groups first, const Groups& then, std::initializer_list<FlagGroup> last = {}) {
  first.insert(first.end(), then.begin(), then.end());
  first.insert(first.end(), last);
  return first;
}

Groups taken_by(Command command) {
  switch (command) {
    case Command::run:
      return joined(
          {model_flags(), prompt_flags(), file_flags(), run_flags(), length_flags(), context_flags(),
           text_flags(), answer_flags(), form_flags(), report_flags(), hash_flags()},
          session_groups(),
          {strategy_flags(), refill_flags(), snapshot_flags(), checkpoint_flags(), shadow_flags(),
           seal_log_flags()});
    case Command::chat:
      return joined(
          {model_flags(), chat_flags(), length_flags(), context_flags(), answer_flags(), report_flags()},
          session_groups(),
          {refill_flags(), snapshot_flags(), checkpoint_flags(), shadow_flags(), seal_log_flags()});
    case Command::ppl:
      return joined({model_flags(), file_flags(), context_flags(), ppl_flags(), json_flags()},
                    session_groups(), {shadow_flags()});
    case Command::bench:
      return joined({model_flags(), file_flags(), bench_flags(), json_flags()}, session_groups());
    case Command::inspect:
      return {model_flags(), inspect_flags(), json_flags(), mapping_flags()};
    case Command::tokenize:
      return {model_flags(), prompt_flags(), text_flags(), file_flags(), json_flags(), mapping_flags()};
    case Command::logits:
      return joined({model_flags(), prompt_flags(), text_flags(), file_flags(), context_flags(),
                     logits_flags(), out_flags()},
                    session_groups());
    case Command::state:
      return {state_flags(), out_flags(), json_flags()};
    case Command::heads:
      return {model_flags(), out_flags(), thread_flags(), mapping_flags(), weights_flags()};
    case Command::copytest:
      return joined({model_flags(), file_flags(), copytest_flags(), json_flags()}, session_groups());
    case Command::recall:
      return joined({model_flags(), file_flags(), lengths_flags(), recall_flags(), json_flags()},
                    session_groups());
    case Command::ruler:
      return joined({model_flags(), file_flags(), lengths_flags(), ruler_flags(), json_flags()},
                    session_groups());
    case Command::table:
      return {model_flags(),  file_flags(),  lengths_flags(), table_flags(),   json_flags(),   exact_flags(),
              thread_flags(), chunk_flags(), kernel_flags(),  mapping_flags(), weights_flags()};
    case Command::plan:
      return {model_flags(),   plan_flags(),    json_flags(),   cache_type_flags(), thread_flags(),
              mapping_flags(), weights_flags(), budget_flags(), preset_flags(),     procedural_flags()};
    case Command::shard:
      return {model_flags(), shard_flags(), prompt_flags(), text_flags(),
              file_flags(),  json_flags(),  thread_flags(), kernel_flags()};
    case Command::coreml:
      return {coreml_flags(), model_flags(), prompt_flags(), file_flags(),
              text_flags(),   json_flags(),  thread_flags(), kernel_flags()};
    case Command::validate:
      return {model_flags(),  validate_flags(), prompt_flags(),  text_flags(),
              file_flags(),   json_flags(),     exact_flags(),   cache_type_flags(),
              thread_flags(), kernel_flags(),   mapping_flags(), weights_flags()};
    case Command::fetch:
      return {models_folder_flags()};
    case Command::pack:
      return {model_flags(), out_flags(), thread_flags(), weights_flags()};
    case Command::serve:
      return {model_flags(), serve_flags(),      context_flags(), serve_memory_flags(), checkpoint_flags(),
              exact_flags(), cache_type_flags(), thread_flags(),  mapping_flags(),      weights_flags()};
    case Command::models:
      return {models_folder_flags(), json_flags()};
  }
  return {};
}

}  // namespace

std::string_view title_of(Section section) {
  switch (section) {
    case Section::basics:
      return "Basics";
    case Section::words:
      return "How words are chosen";
    case Section::memory:
      return "What the memory holds, and how exactly (changes results)";
    case Section::snapshots:
      return "Keeping what was read";
    case Section::compression:
      return "How a procedural memory compresses; a budget picks most of these (changes results)";
    case Section::speed:
      return "Speed and scratch memory only (the results stay the same bits)";
    case Section::output:
      return "What is printed and written";
  }
  return "";
}

std::vector<FlagGroup> groups_of(Command command) {
  Groups groups = joined(taken_by(command), {help_flags()});
  std::stable_sort(groups.begin(), groups.end(),
                   [](const FlagGroup& a, const FlagGroup& b) { return a.section < b.section; });
  return groups;
}

std::vector<Flag> flags_of(Command command) {
  std::vector<Flag> flags;
  for (const FlagGroup& group : groups_of(command))
    flags.insert(flags.end(), group.flags.begin(), group.flags.end());
  return flags;
}

}  // namespace kvtide
