// flag_groups.h: the flags of the program in groups, each described once. Which commands take which groups is
// said in command_flags.cpp.
#pragma once

#include "cli/arguments/flags.h"

namespace kvtide {

// common_flags.cpp
FlagGroup model_flags();
FlagGroup mapping_flags();
FlagGroup weights_flags();
FlagGroup prompt_flags();
FlagGroup text_flags();
FlagGroup file_flags();
FlagGroup context_flags();
FlagGroup exact_flags();
FlagGroup thread_flags();
FlagGroup chunk_flags();
FlagGroup kernel_flags();
FlagGroup out_flags();
FlagGroup json_flags();
FlagGroup help_flags();
FlagGroup models_folder_flags();

// answer_flags.cpp
FlagGroup length_flags();
FlagGroup answer_flags();
FlagGroup report_flags();
FlagGroup run_flags();
FlagGroup form_flags();
FlagGroup hash_flags();
FlagGroup strategy_flags();
FlagGroup chat_flags();

// measure_flags.cpp
FlagGroup ppl_flags();
FlagGroup bench_flags();
FlagGroup inspect_flags();
FlagGroup logits_flags();

// judge_flags.cpp
FlagGroup copytest_flags();
FlagGroup lengths_flags();
FlagGroup recall_flags();
FlagGroup ruler_flags();
FlagGroup table_flags();

// plan_flags.cpp
FlagGroup plan_flags();

// validate_flags.cpp
FlagGroup validate_flags();

// memory_flags.cpp
FlagGroup cache_type_flags();
FlagGroup attention_flags();
FlagGroup checkpoint_flags();
FlagGroup refill_flags();
FlagGroup snapshot_flags();

// state_flags.cpp
FlagGroup state_flags();

// procedural_flags.cpp
FlagGroup budget_flags();
FlagGroup preset_flags();
FlagGroup procedural_flags();
FlagGroup head_table_flags();
FlagGroup shadow_flags();
FlagGroup seal_log_flags();

// shard_flags.cpp
FlagGroup shard_flags();

// serve_flags.cpp
FlagGroup serve_flags();
FlagGroup serve_memory_flags();

// coreml_flags.cpp
FlagGroup coreml_flags();

}  // namespace kvtide
