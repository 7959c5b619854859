#include "model/channel_conv.h"

#include "base/as_size.h"

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

void ChannelConv::convolve(const ElementwiseRow& rows, std::int64_t t, float* y) const {
  ConvStep step{.x = {},
                .taps = taps_.data(),
                .bias = bias_.empty() ? nullptr : bias_.data(),
                .count = static_cast<int>(past_ + 1),
                .n = channels_};
  for (std::int64_t tap = 0; tap <= past_; ++tap) step.x[tap] = row(t + tap - past_);
  rows.convolve_silu(step, y);
}

void ChannelConv::carry(KvState::Step& step, std::size_t tensor) const {
  for (std::int64_t t = step.first_carried(); t < step.tokens(); ++t) {
    auto* const values = reinterpret_cast<float*>(step.carry(tensor, t).data());
    for (std::int64_t tap = 0; tap < past_; ++tap) {
      const float* x = row(t + 1 + tap - past_);
      for (std::int64_t c = 0; c < channels_; ++c) values[c * past_ + tap] = x[c];
    }
    step.carried(tensor, t);
  }
}

}  // namespace kvtide
