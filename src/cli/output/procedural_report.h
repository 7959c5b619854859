// procedural_report.h: what a procedural memory was given, holds and did, as lines, as JSON and as a log.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "cli/output/memory_event.h"
#include "kvtide/session.h"

namespace kvtide {

// What a budget bought: bytes by tier. Nothing without a budget.
void say_what_the_budget_picked(const Session& session);

// kv_budget, kv_bytes_peak, rows ... of docs/cli.md; nulls for a memory of another kind.
void set_procedural(Json& report, const Session& session);
// What is held and what was done, but for drift: nothing for a memory of another kind.
std::vector<std::string> procedural_lines(const Session& session);
// What shadow mode measured; null without it. And the line that says it.
Json drift_json(const std::optional<Drift>& drift);
std::string drift_line(const Drift& drift);
// "drift 3.1% (worst layer 12)", for a progress line; empty without shadow mode.
std::string drift_words(const Session& session);
// One event that sums up the run.
MemoryEvent procedural_event(const Session& session);

// --kv-log: a line per block that was compressed or merged, written when it happens.
class SealLog {
 public:
  // An empty path: no log. Throws Error(io) naming the path.
  explicit SealLog(const std::string& path);
  // Writes what the newest seal did, once. Throws Error(io).
  void note(const Session& session);
  // The session forgot its text: its seals count from the start.
  void forget() { seen_ = 0; }

 private:
  std::string path_;
  std::ofstream file_;
  Pos seen_ = 0;  // position of the newest seal that is written
};

}  // namespace kvtide
