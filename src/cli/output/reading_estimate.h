// reading_estimate.h: how long the rest of a text will take to read.
//
// A token deep in a text costs more than an early one: attention looks at every row that is held. What is left is
// therefore counted in work, not in tokens, or the estimate would grow while the text is read.
//
// Ownership and thread rules: a plain value. Units: tokens, seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvtide/session.h"

namespace kvtide {

class ReadingEstimate {
 public:
  // Of a session that is about to read.
  explicit ReadingEstimate(const Session& session);
  // Seconds until `total` tokens are read, of which `done` took `seconds`; nullopt before the first token.
  std::optional<double> left(std::int64_t done, std::int64_t total, double seconds);

 private:
  struct Sample {
    double seconds = 0.0, work = 0.0;
  };
  double work(std::int64_t tokens) const;  // of the next so many tokens; 1: a token that sees no rows

  double first_ = 0.0;        // tokens that were held at the start
  double equal_rows_ = 0.0;   // rows whose attention costs as much as the matrices of a token
  std::vector<double> caps_;  // per layer: the most rows that are seen
  std::vector<Sample> samples_ = {{}};
};

}  // namespace kvtide
