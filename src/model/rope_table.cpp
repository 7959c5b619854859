#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvtide {
namespace {

// The pair index whose wave turns `turns` times in `context` positions.
double pair_with_turns(double turns, const RopeConfig& config, int dims) {
  return dims * std::log(config.original_context / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.base));
}

}  // namespace

RopeTable::RopeTable(const RopeConfig& config, int rope_dims) {
  for (int i = 0; i < rope_dims / 2; ++i) {
    const bool still = config.still || (config.turning && i >= *config.turning);
    double frequency = still ? 0.0 : std::pow(config.base, -2.0 * i / rope_dims);
    if (!config.divisors.empty())
      frequency /= static_cast<double>(config.divisors[static_cast<std::size_t>(i)]);
    if (config.scaling == RopeScaling::linear) frequency /= config.factor;
    // YaRN keeps pairs that turn often within the original context, stretches those that hardly turn, and
    // blends between.
    if (config.scaling == RopeScaling::yarn) {
      double low = pair_with_turns(config.fast_turns, config, rope_dims),
             high = pair_with_turns(config.slow_turns, config, rope_dims);
      if (config.whole_pairs) {
        low = std::floor(low);
        high = std::ceil(high);
      }
      low = std::max(0.0, low);
      high = std::min(rope_dims - 1.0, high);
      if (low == high) high += 0.001;
      const double stretched = std::clamp((i - low) / (high - low), 0.0, 1.0);
      frequency = frequency / config.factor * stretched + frequency * (1.0 - stretched);
    }
    frequencies_.push_back(frequency);
  }
  const bool grows = config.scaling == RopeScaling::yarn && config.factor > 1.0;
  magnitude_ = config.magnitude.value_or(grows ? 0.1 * std::log(config.factor) + 1.0 : 1.0);
}

void RopeTable::fill(Pos first, std::int64_t count, float* cosine, float* sine) const {
  for (std::int64_t t = 0; t < count; ++t)
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
      const double angle = static_cast<double>(first + t) * frequencies_[i];
      *cosine++ = static_cast<float>(std::cos(angle) * magnitude_);
      *sine++ = static_cast<float>(std::sin(angle) * magnitude_);
    }
}

}  // namespace kvtide
