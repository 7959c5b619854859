// rope_table.h: the angles by which queries and keys are rotated, computed in double, kept as f32 sines and
// cosines.
//
// Source: RoPE (Su et al. 2021); linear scaling (position interpolation, Chen et al. 2023); YaRN (Peng et al.
// 2023).
#pragma once

#include <cstdint>
#include <vector>

#include "kvtide/types.h"
#include "model/config/config.h"

namespace kvtide {

// Frequencies of the pairs of one RopeConfig.
class RopeTable {
 public:
  RopeTable(const RopeConfig& config, int rope_dims);

  std::int64_t pairs() const { return static_cast<std::int64_t>(frequencies_.size()); }
  const std::vector<double>& frequencies() const { return frequencies_; }  // radians per position
  double magnitude() const { return magnitude_; }                          // of cosines and sines
  // cosine, sine: [count][pairs] for the positions first .. first + count - 1.
  void fill(Pos first, std::int64_t count, float* cosine, float* sine) const;

 private:
  std::vector<double> frequencies_;  // radians per position
  double magnitude_ = 1.0;           // YaRN and LongRoPE scale both factors of a score
};

}  // namespace kvtide
