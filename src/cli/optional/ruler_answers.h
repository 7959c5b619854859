// ruler_answers.h: what memories answered in the tasks of kvtide ruler, as a table, as JSON and sample by sample.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "eval/ruler.h"
#include "kvtide/session.h"

namespace kvtide {

// What one memory answered, sample by sample.
struct TaskAnswers {
  std::vector<double> nll;    // -ln p per token of the answers
  std::vector<double> right;  // share of answers that greedy decoding writes
};

struct TaskMemory {
  std::string name;  // "8x"
  SessionOptions options;
  TaskAnswers answers;
  std::vector<std::int64_t> kv_bytes;  // held at the end of each sample
};

struct TaskCell {
  RulerTask task;
  std::int64_t length;
  TaskAnswers full, nothing;  // the full cache; the question alone
  std::vector<TaskMemory> memories;
  // No memory can be told from another where a full cache knows no more than one without the text.
  bool floor() const;
};

// left_out: memories that were not measured, and why not.
std::string task_cells_text(const std::vector<TaskCell>& cells, const std::vector<std::string>& left_out);
std::string task_cells_json(const Model& model, const Arguments& arguments,
                            const std::vector<TaskCell>& cells, const std::vector<std::string>& left_out);

// A line of JSON with what another program needs to ask the same: the ids of the text, where its question begins,
// and which ids answer. i: the sample's place in the cell, number: that in its seed.
std::string sample_line(const TaskCell& cell, const RulerSample& text, std::int64_t number, std::size_t i);

}  // namespace kvtide
