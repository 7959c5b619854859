#include "model/short_conv.h"

#include <algorithm>

#include "base/as_size.h"
#include "base/text.h"
#include "model/for_rows.h"

namespace kvtide {
namespace {

// The number of a layer's tensor among those that are carried.
std::size_t tensor_of(const ModelConfig& config, int layer) {
  const auto end = config.layers.begin() + layer;
  return static_cast<std::size_t>(std::count_if(config.layers.begin(), end, [](const LayerConfig& before) {
    return before.mixer == Mixer::short_convolution;
  }));
}

// One call for one layer.
class ShortConv {
 public:
  ShortConv(const ModelConfig& config, const ShortConvWeights& weights, const ShortConvScratch& scratch)
      : width_(config.width), past_(config.conv_taps - 1), w_(weights), s_(scratch) {}

  // values: [width][L - 1]
  void take_past(const float* values) const {
    for (std::int64_t c = 0; c < width_; ++c)
      for (std::int64_t tap = 0; tap < past_; ++tap) u(tap - past_)[c] = values[c * past_ + tap];
  }
  void gate(std::int64_t t) const {
    float* row = s_.thirds + t * 3 * width_;
    for (std::size_t i = 0; i < w_.in_bias.size(); ++i) row[i] += w_.in_bias[i];
    const float* x = row + 2 * width_;
    for (std::int64_t c = 0; c < width_; ++c) u(t)[c] = row[c] * x[c];
  }
  void convolve(std::int64_t t) const {
    float* y = s_.y + t * width_;
    const float* gate = s_.thirds + t * 3 * width_ + width_;
    for (std::int64_t c = 0; c < width_; ++c) y[c] = w_.conv_bias.empty() ? 0.0f : w_.conv_bias[as_size(c)];
    for (std::int64_t tap = 0; tap <= past_; ++tap) {
      const float *weight = w_.taps.data() + tap * width_, *before = u(t + tap - past_);
      for (std::int64_t c = 0; c < width_; ++c) y[c] += weight[c] * before[c];
    }
    for (std::int64_t c = 0; c < width_; ++c) y[c] *= gate[c];
  }
  // What is carried behind token t.
  void hand_on(std::int64_t t, std::vector<float>& values) const {
    for (std::int64_t c = 0; c < width_; ++c)
      for (std::int64_t tap = 0; tap < past_; ++tap)
        values[as_size(c * past_ + tap)] = u(t + 1 + tap - past_)[c];
  }

 private:
  float* u(std::int64_t t) const { return s_.u + (t + past_) * width_; }

  std::int64_t width_, past_;
  const ShortConvWeights& w_;
  const ShortConvScratch& s_;
};

}  // namespace

ShortConvWeights load_short_conv(const ModelConfig& config, WeightSource& source) {
  const std::int64_t width = config.width, taps = config.conv_taps;
  ShortConvWeights w;
  w.in = source.matrix(Role::short_conv_in, 3 * width, width);
  w.out = source.matrix(Role::short_conv_out, width, width);
  const auto stored = source.values(Role::short_conv, {width, 1, taps});
  w.taps.resize(stored.size());
  for (std::int64_t c = 0; c < width; ++c)
    for (std::int64_t tap = 0; tap < taps; ++tap)
      w.taps[as_size(tap * width + c)] = stored[as_size(c * taps + tap)];
  if (!config.conv_biased) return w;
  w.in_bias = source.values(Role::short_conv_in_bias, {3 * width});
  w.conv_bias = source.values(Role::short_conv_bias, {width});
  w.out_bias = source.values(Role::short_conv_out_bias, {width});
  return w;
}

std::vector<RecurrentSpec> short_conv_tensors(const ModelConfig& config) {
  std::vector<RecurrentSpec> specs;
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer)
    if (config.layers[layer].mixer == Mixer::short_convolution)
      specs.push_back(
          {cat("layers.", layer, ".conv_state"), DType::f32, {config.width, config.conv_taps - 1}});
  return specs;
}

void run_short_conv(const ModelConfig& config, const ShortConvWeights& weights, ThreadPool& pool,
                    KvState::Step& step, int layer, const ShortConvScratch& scratch) {
  const ShortConv conv(config, weights, scratch);
  const std::size_t tensor = tensor_of(config, layer);
  conv.take_past(reinterpret_cast<const float*>(step.state().recurrent().value(tensor).data()));
  for_rows(pool, 0, step.tokens(), [&](std::int64_t t) { conv.gate(t); });
  std::vector<float> values(as_size(config.width * (config.conv_taps - 1)));
  for (std::int64_t t = step.first_carried(); t < step.tokens(); ++t) {
    conv.hand_on(t, values);
    step.carry(tensor, t, std::as_bytes(std::span(values)));
  }
  for_rows(pool, 0, step.tokens(), [&](std::int64_t t) { conv.convolve(t); });
}

}  // namespace kvtide
