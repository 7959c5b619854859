// plain_carried.h: what the layers without attention of the plain decoder have in common: a causal convolution of every
// channel by itself, and what is handed from token to token. For plain_recurrence.cpp and plain_state_space.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "validate/plain_decoder.h"

namespace kvtide {

inline std::size_t as_index(std::int64_t index) { return static_cast<std::size_t>(index); }
inline double in_double(float x) { return static_cast<double>(x); }
inline double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double log1p_exp(double x) { return x > 30.0 ? x : std::log1p(std::exp(x)); }

class PlainDecoder::Recurrence {
 public:
  Recurrence(const PlainDecoder& decoder, std::vector<float> taps, std::int64_t channels)
      : d_(decoder), taps_(std::move(taps)), count_(std::ssize(taps_) / channels) {}

  bool handed(Pos from, Pos to, Slip forgetting) const {
    if (from < 0) return false;
    const bool forgets = d_.slips(forgetting) || d_.slips(Slip::carried_forgotten);
    return !(forgets && d_.twist_.carried_from) || from >= d_.twist_.carried_from(to);
  }
  // value(token, channel)
  template <class Value>
  double convolved(Pos t, std::int64_t c, Value value) const {
    if (d_.slips(Slip::convolution_skipped)) return value(t, c);
    double sum = 0.0;
    for (std::int64_t tap = 0; tap < count_; ++tap) {
      const Pos from = t - count_ + 1 + tap;
      if (!handed(from, t, Slip::history_forgotten)) continue;
      const std::int64_t stored = d_.slips(Slip::convolution_reversed) ? count_ - 1 - tap : tap;
      sum += in_double(taps_[as_index(c * count_ + stored)]) * value(from, c);
    }
    return sum;
  }

 private:
  const PlainDecoder& d_;
  std::vector<float> taps_;  // [channels][taps]
  std::int64_t count_;
};

}  // namespace kvtide
