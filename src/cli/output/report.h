// report.h: the figures of a run: printed on stderr at its end and written as JSON with --report (keys:
// docs/cli.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "cli/output/memory_event.h"
#include "cli/output/memory_reading.h"
#include "kvtide/generate.h"
#include "kvtide/session.h"

namespace kvtide {

struct TurnFigures {  // of one prompt and its answer
  std::int64_t prefill_tokens = 0;
  double prefill_seconds = 0.0;
  std::int64_t decode_tokens = 0;
  double decode_seconds = 0.0;
  std::int64_t drafted = 0, accepted = 0;  // tokens guessed, and those of them that were right
  std::optional<double> ttft_seconds;      // from the prompt in hand to the first text written
  std::string stop_reason;                 // "end_of_text", ..., "not_started"

  double prefill_rate() const {
    return prefill_seconds > 0.0 ? static_cast<double>(prefill_tokens) / prefill_seconds : 0.0;
  }
  double decode_rate() const {
    return decode_seconds > 0.0 ? static_cast<double>(decode_tokens) / decode_seconds : 0.0;
  }
};

struct RunReport {
  TurnFigures figures;             // over all turns
  std::vector<TurnFigures> turns;  // of a chat
  double load_seconds = 0.0;
  std::int64_t context_tokens = 0;  // held at the end
  Pos position = 0;                 // tokens read, forgotten ones included
  std::int64_t context_limit = 0;
  MemoryUse stated;        // by the engine
  MemoryReading measured;  // by the operating system
  std::optional<std::uint64_t> logits_hash;
  std::vector<TokenId> tokens;  // of the answer
  std::string text;
  std::vector<MemoryEvent> events;  // what happened to the memory on the way: none when it just filled up
  std::int64_t loaded_tokens = 0;   // from a snapshot
};

// Fills in what the session and the operating system say now.
void read_session(RunReport& report, const Session& session);

struct ReportWords {
  bool everything = false;  // -v: beside what was read, written and is held
  bool hash = false;        // of the logits
};
void print_report(const RunReport& report, const Session& session, const ReportWords& words);
Json report_json(const RunReport& report, const Session& session);

std::string hash_text(std::uint64_t hash);  // 16 hexadecimal digits

}  // namespace kvtide
