#include "state/procedural/drift_meter.h"

#include <algorithm>
#include <cmath>

namespace kvtide {

void ErrorBins::add(double value) {
  int bin = 0;
  if (value > 1e-6)
    bin = 1 + std::clamp(static_cast<int>((std::log10(value) + 6.0) * kPerDecade), 0, kBins - 2);
  ++bins_[static_cast<std::size_t>(bin)];
  ++count_;
  sum_ += value;
}

double ErrorBins::quantile(double share) const {
  const auto wanted = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count_)));
  std::int64_t seen = 0;
  for (int bin = 0; bin < kBins; ++bin) {
    seen += bins_[static_cast<std::size_t>(bin)];
    if (seen >= wanted) return bin == 0 ? 0.0 : std::pow(10.0, (bin - 0.5) / kPerDecade - 6.0);
  }
  return 0.0;
}

Spread ErrorBins::spread() const {
  if (count_ == 0) return {};
  return {sum_ / static_cast<double>(count_), quantile(0.5), quantile(0.99)};
}

void DriftMeter::add(int layer, const SampledErrors& errors) {
  for (std::size_t h = 0; h < errors.output.size(); ++h) {
    output_.add(errors.output[h]);
    log_mass_.add(errors.log_mass[h]);
    missed_.add(1.0 - errors.overlap[h]);
    const auto known = std::find_if(heads_.begin(), heads_.end(), [&](const Head& head) {
      return head.layer == layer && head.head == static_cast<int>(h);
    });
    Head& head = known != heads_.end() ? *known : heads_.emplace_back(Head{layer, static_cast<int>(h)});
    ++head.count;
    head.output += errors.output[h];
    head.log_mass += errors.log_mass[h];
    head.overlap += errors.overlap[h];
  }
}

void DriftMeter::clear() {
  output_ = log_mass_ = missed_ = {};
  heads_.clear();
}

Drift DriftMeter::drift(std::int64_t tokens) const {
  Drift drift;
  drift.tokens = tokens;
  drift.output = output_.spread();
  drift.log_mass = log_mass_.spread();
  if (!heads_.empty()) {
    const Spread missed = missed_.spread();
    drift.overlap = {1.0 - missed.mean, 1.0 - std::min(1.0, missed.p50), 1.0 - std::min(1.0, missed.p99)};
  }
  for (const Head& head : heads_) {
    const auto count = static_cast<double>(head.count);
    drift.heads.push_back(
        {head.layer, head.head, head.output / count, head.log_mass / count, head.overlap / count});
  }
  std::sort(drift.heads.begin(), drift.heads.end(), [](const HeadDrift& a, const HeadDrift& b) {
    return a.layer != b.layer ? a.layer < b.layer : a.head < b.head;
  });
  for (std::size_t begin = 0, end = 0; begin < drift.heads.size(); begin = end) {
    double sum = 0.0;
    for (; end < drift.heads.size() && drift.heads[end].layer == drift.heads[begin].layer; ++end)
      sum += drift.heads[end].output;
    const double mean = sum / static_cast<double>(end - begin);
    if (drift.worst_layer >= 0 && mean <= drift.worst_output) continue;
    drift.worst_layer = drift.heads[begin].layer;
    drift.worst_output = mean;
  }
  return drift;
}

}  // namespace kvtide
