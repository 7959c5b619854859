// arguments.h: what the user asked for: the command line as checked values (parse.h). Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments/command.h"
#include "cli/arguments/coreml_request.h"
#include "cli/arguments/memory_flags.h"
#include "cli/arguments/serve_request.h"
#include "cli/arguments/shard_request.h"
#include "cli/arguments/validate_request.h"
#include "kvtide/generate.h"
#include "kvtide/model.h"
#include "kvtide/session.h"

namespace kvtide {

// What kvtide ppl --stream reads beside the memory: the full cache, or a window of as many bytes.
enum class Against { nothing, full, window };

struct Arguments {
  Command command = Command::run;
  bool help = false;     // of the command, or of the program when there is no command
  bool version = false;  // of the program
  bool has_command = false;

  std::string model;
  ModelOptions loading;
  SessionOptions session;  // context 0: the command's default
  SamplerOptions sampler;
  Draft draft = Draft::none;
  std::optional<std::string> prompt;       // -p
  std::optional<std::string> file;         // -f; "-" is stdin
  std::optional<std::int64_t> max_tokens;  // -n; -1: until the end of the text
  std::vector<std::string> stop;
  bool chat = false;
  std::string chat_template;               // empty: as the model says
  std::optional<std::string> json_schema;  // a file or the schema itself
  std::optional<std::string> grammar;      // a file
  std::optional<std::string> system;
  bool no_bos = false;
  bool no_special = false;
  bool text_newlines = false;  // CR LF becomes LF, a byte order mark goes
  bool logits_hash = false;
  bool verbose = false;
  bool json = false;
  std::string report;  // empty: none
  // ppl
  std::int64_t chunks = 0;  // 0: all
  bool stream = false;
  std::int64_t bucket = 1024;
  Against against = Against::nothing;
  // bench
  std::int64_t bench_prompt = 512;
  std::int64_t bench_tokens = 64;
  std::vector<std::int64_t> depths = {0};
  int repetitions = 3;
  int sessions = 1;
  std::string plot;  // --plot; empty: none
  std::string rows;  // --rows: measured before
  // copytest, recall, table
  std::vector<std::int64_t> lengths;     // --ctx
  std::vector<std::int64_t> depth_list;  // --at, --depth: percent
  bool alone = false;                    // copytest
  std::int64_t needles = 8;
  std::vector<std::string> tasks;    // ruler
  std::vector<std::int64_t> ratios;  // of full caches to budgets; empty: one memory, as the flags say
  std::int64_t samples = 20, first_sample = 0;
  std::vector<std::string> models;   // every -m
  std::vector<std::string> presets;  // --presets
  std::vector<std::int64_t> budgets;
  // logits
  std::string out;
  bool all_positions = false;
  MemoryFlags memory;
  StateRequest state;
  PlanRequest plan;
  std::string fetched;  // fetch: which model
  std::string folder;   // fetch, models: where models lie; empty: the usual place
  ShardRequest shard;
  CoremlRequest coreml;
  ValidateRequest validate;
  ServeRequest serve;
};

}  // namespace kvtide
