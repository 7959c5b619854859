#include "model/cca_weights.h"

#include <algorithm>
#include <cmath>

#include "base/as_size.h"
#include "model/for_rows.h"

namespace kvtide {
namespace {

// body(place in panels, place in a checkpoint) for every weight of the grouped convolution.
template <class Body>
void for_taps(const CcaSizes& s, Body body) {
  for (std::int64_t o = 0; o < s.channels; ++o) {
    const std::int64_t head = o / s.head_dim, within = o % s.head_dim;
    const std::int64_t panel = head * s.panels + within / kPanelRows;
    for (std::int64_t tap = 0; tap < 2; ++tap)
      for (std::int64_t i = 0; i < s.head_dim; ++i)
        body(as_size(((panel * 2 + tap) * s.head_dim + i) * kPanelRows + within % kPanelRows),
             as_size((o * s.head_dim + i) * 2 + tap));
  }
}

std::vector<float> panels_of(const std::vector<float>& grouped, const CcaSizes& s) {
  std::vector<float> out(as_size(s.heads * s.panels * s.panel_floats()), 0.0f);
  for_taps(s, [&](std::size_t panel, std::size_t tap) { out[panel] = grouped[tap]; });
  return out;
}

}  // namespace

CcaSizes::CcaSizes(const ModelConfig& c)
    : head_dim(c.head_dim),
      q_width(std::int64_t{c.heads} * c.head_dim),
      kv_width(std::int64_t{c.kv_heads} * c.head_dim),
      channels(q_width + kv_width),
      heads(std::int64_t{c.heads} + c.kv_heads),
      panels((head_dim + kPanelRows - 1) / kPanelRows) {}

std::vector<float> grouped_taps(const CcaWeights& weights, const CcaSizes& s) {
  std::vector<float> out(as_size(s.channels * s.head_dim * 2));
  for_taps(s, [&](std::size_t panel, std::size_t tap) { out[tap] = weights.grouped[panel]; });
  return out;
}

CcaWeights load_cca(const ModelConfig& config, WeightSource& source) {
  const CcaSizes s(config);
  CcaWeights w;
  w.value_delayed = source.matrix(Role::value_delayed, s.kv_width / 2, config.width);
  const auto taps = source.values(Role::conv_depthwise, {s.channels, 1, 2});
  for (std::int64_t c = 0; c < s.channels; ++c) {
    w.older.push_back(taps[as_size(2 * c)]);
    w.newer.push_back(taps[as_size(2 * c + 1)]);
  }
  w.depthwise_bias = source.values(Role::conv_depthwise_bias, {s.channels});
  w.grouped = panels_of(source.values(Role::conv_grouped, {s.channels, s.head_dim, 2}), s);
  w.grouped_bias = source.values(Role::conv_grouped_bias, {s.channels});
  w.query_gain.assign(as_size(s.head_dim), 1.0f);
  for (float temperature : source.values(Role::key_temperature, {config.kv_heads})) {
    if (config.temperature_is_log) temperature = std::exp(std::clamp(temperature, 1e-7f, 2.0f));
    w.key_gain.insert(w.key_gain.end(), as_size(s.head_dim), temperature);
  }
  return w;
}

}  // namespace kvtide
