// progress.h: how far a long computation is: one line that is redrawn on a terminal, a plain line now and
// then elsewhere. What matters most comes first, so that a narrow terminal cuts off the rest.
//
// Ownership: wipes its line when it is destroyed. Thread rules: one at a time, from one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/output/reading_estimate.h"
#include "kvtide/session.h"

namespace kvtide {

class Progress {
 public:
  // Of something that is not counted in tokens: a share of 1.
  explicit Progress(std::string label);
  // `label` says what is done, in one word; the session's memory is shown.
  Progress(std::string label, const Session& session);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // At most ten times per second on a terminal; elsewhere every three seconds, and every twentieth of the whole. Other
  // calls cost nothing.
  void update(std::int64_t done, std::int64_t total, std::string_view more = {});
  void update(double share);

 private:
  using Clock = std::chrono::steady_clock;
  bool due(double share);
  // The bar fills what the line leaves free; a file gets none.
  void show(std::string line, double share);
  double seconds() const;
  std::string label_;
  const Session* session_;
  std::optional<ReadingEstimate> estimate_;
  bool redraws_;
  bool drawn_ = false;
  double next_share_ = 0.0;
  Clock::time_point start_, next_;
};

}  // namespace kvtide
