// bench_run.h: one measurement of kvtide bench: reading a stretch of text at once or token by token behind a
// given depth, several times.
//
// Ownership: refers to the model and the session. Thread rules: those of Session. Units: seconds, bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/commands/opening.h"
#include "eval/limits.h"

namespace kvtide {

struct BenchCase {
  bool reads;  // "pp", else "tg"
  std::int64_t n;
  std::int64_t depth;
  int sessions = 1;  // that write at once, each so many tokens

  std::int64_t tokens() const { return n * sessions; }
};

struct BenchResult {
  double seconds = 0.0;  // median
  PassTimes times;       // of the last repetition, when they are asked for
  std::uint64_t hash = 0;
  std::int64_t kv_bytes = 0, rss_bytes = 0;
};

class BenchRun {
 public:
  BenchRun(const Arguments& arguments, OpenModel& open, std::vector<TokenId> tokens)
      : arguments_(arguments), model_(open.model), session_(open.session), tokens_(std::move(tokens)) {}

  // The first pass over the weights brings them into memory; it is not measured.
  void warm_up();
  // Throws Error(numeric) when two repetitions differ.
  BenchResult measure(const BenchCase& what);
  PassWork work_of(const BenchCase& what) const;

 private:
  std::span<const TokenId> part(std::int64_t first, std::int64_t count) const;
  std::uint64_t once(const BenchCase& what, std::vector<double>& seconds);
  std::uint64_t read_once(const BenchCase& what, std::vector<double>& seconds);
  std::uint64_t write_once(const BenchCase& what, std::vector<double>& seconds);
  std::uint64_t write_together(const BenchCase& what, std::vector<double>& seconds);
  void fill(Session& session, std::int64_t depth);

  const Arguments& arguments_;
  const Model& model_;
  Session& session_;
  std::vector<TokenId> tokens_;
  PassTimes times_;
  std::vector<Session> others_;  // of measurements of several sessions
  std::optional<Batch> batch_;
};

}  // namespace kvtide
