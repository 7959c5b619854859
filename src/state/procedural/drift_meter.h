// drift_meter.h: many errors as a mean and a few quantiles, in constant memory.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kvtide/procedural.h"

namespace kvtide {

// Numbers from 0 up, sorted into bins: 32 per factor of ten between 1e-6 and 1e3. Quantiles are the middle of
// a bin: within 4%.
class ErrorBins {
 public:
  void add(double value);
  Spread spread() const;

 private:
  static constexpr int kPerDecade = 32, kDecades = 9, kBins = kPerDecade * kDecades + 1;
  double quantile(double share) const;
  std::array<std::int64_t, kBins> bins_{};  // the first: everything below 1e-6
  std::int64_t count_ = 0;
  double sum_ = 0.0;
};

// Errors of one sampled token in one layer, per query head; gathered over a run.
struct SampledErrors {
  std::vector<double> output, log_mass, overlap;
};

class DriftMeter {
 public:
  // Makes room for so many (layer, query head): adding needs no memory then.
  void expect(std::size_t heads) { heads_.reserve(heads); }
  void add(int layer, const SampledErrors& errors);
  void clear();
  // Everything but bytes and seconds. tokens: sampled so far.
  Drift drift(std::int64_t tokens) const;

 private:
  struct Head {
    int layer, head;
    std::int64_t count = 0;
    double output = 0.0, log_mass = 0.0, overlap = 0.0;
  };
  ErrorBins output_, log_mass_, missed_;
  std::vector<Head> heads_;
};

}  // namespace kvtide
