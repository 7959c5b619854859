// row_match.h: what a row of a state that is not what it should be equals instead.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvtide/validate.h"

namespace kvtide {

// Where a row was found among what the reference has.
struct RowMatch {
  enum Kind {
    unknown,
    zero,      // nobody wrote it
    missing,   // the state does not hold it
    token,     // the row of another token
    head,      // of another head, maybe of another token
    layer,     // of another layer
    position,  // of this token, rotated for another position
    wide,      // of this token, rotated over `pairs` pairs instead of those that it has
  };
  Kind kind = unknown;
  std::int64_t head_found = 0;
  Pos token_found = 0;  // or the position
  int layer_found = 0;
  std::int64_t pairs = 0;
};

struct WrongRow {
  bool key = true;
  std::int64_t head = 0;
  Pos token = 0;
  RowMatch match;
};

struct RowQuestion {
  const Golden& golden;
  int layer;
  bool key;
  std::int64_t head;
  Pos token;
  std::span<const double> frequencies;  // of the layer
  double tolerance;                     // relative error up to which rows are the same
};

RowMatch find_row(std::span<const float> row, const RowQuestion& question);

// A key [head_dim] that was rotated for `from` as it would be for `to`; pairs (i, i + frequencies.size()).
std::vector<float> rotated(std::span<const float> key, std::span<const double> frequencies, Pos from, Pos to);
// The same frequencies' base over another number of pairs.
std::vector<double> widened(std::span<const double> frequencies, std::int64_t pairs);

}  // namespace kvtide
