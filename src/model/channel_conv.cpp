#include "model/channel_conv.h"

#include <algorithm>

#include "base/as_size.h"
#include "model/gates.h"

namespace kvtide {

std::vector<float> load_channel_taps(WeightSource& source, Role role, std::int64_t channels,
                                     std::int64_t taps) {
  const auto stored = source.values(role, {channels, 1, taps});
  std::vector<float> turned(stored.size());
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t tap = 0; tap < taps; ++tap)
      turned[as_size(tap * channels + c)] = stored[as_size(c * taps + tap)];
  return turned;
}

ChannelConv::ChannelConv(std::span<const float> taps, std::span<const float> bias, std::int64_t channels,
                         std::span<const std::byte> past, const float* rows)
    : taps_(taps),
      bias_(bias),
      channels_(channels),
      past_(static_cast<std::int64_t>(taps.size()) / channels - 1),
      rows_(rows),
      before_(as_size(past_ * channels_)) {
  const auto* values = reinterpret_cast<const float*>(past.data());
  for (std::int64_t c = 0; c < channels_; ++c)
    for (std::int64_t tap = 0; tap < past_; ++tap)
      before_[as_size(tap * channels_ + c)] = values[c * past_ + tap];
}

void ChannelConv::convolve(std::int64_t t, float* y) const {
  if (bias_.empty())
    std::fill_n(y, channels_, 0.0f);
  else
    std::copy(bias_.begin(), bias_.end(), y);
  for (std::int64_t tap = 0; tap <= past_; ++tap) {
    const float *weight = taps_.data() + tap * channels_, *x = row(t + tap - past_);
    for (std::int64_t c = 0; c < channels_; ++c) y[c] += weight[c] * x[c];
  }
  for (std::int64_t c = 0; c < channels_; ++c) y[c] *= sigmoid(y[c]);
}

void ChannelConv::carry(KvState::Step& step, std::size_t tensor) const {
  std::vector<float> values(as_size(channels_ * past_));
  for (std::int64_t t = step.first_carried(); t < step.tokens(); ++t) {
    for (std::int64_t tap = 0; tap < past_; ++tap) {
      const float* x = row(t + 1 + tap - past_);
      for (std::int64_t c = 0; c < channels_; ++c) values[as_size(c * past_ + tap)] = x[c];
    }
    step.carry(tensor, t, std::as_bytes(std::span(values)));
  }
}

}  // namespace kvtide
