// plain_hybrid.cpp: what zaya has of its own, as its papers write it, token by token in double: convolved
// queries and keys, values of two tokens, a scaled residual stream. cca.h has the formulas and the sources; nothing here
// is its.
#include <algorithm>
#include <cmath>

#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
double wide(float x) { return static_cast<double>(x); }

}  // namespace

void PlainDecoder::join(Rows& x, const Rows& y, int layer, const Role (&scales)[4]) const {
  const Twist::Part part = &scales == &kAttentionScales ? Twist::Part::attention : Twist::Part::feed_forward;
  if (!config_.scaled_residual || slips(Slip::residual_unscaled, part)) {
    const float times = slips(Slip::residual_dropped, part) ? 0.0f
                        : slips(Slip::residual_twice, part) ? 2.0f
                                                            : 1.0f;
    const float scale = slips(Slip::residual_unscaled, part) ? 1.0f : config_.residual_scale;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = times * x[i] + scale * y[i];
    return;
  }
  std::vector<float> parts[4];
  for (std::size_t i = 0; i < 4; ++i) parts[i] = vector(scales[i], layer, config_.width);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % at(config_.width);
    const double output = (wide(y[i]) + wide(parts[1][c])) * wide(parts[0][c]);
    x[i] = static_cast<float>(output + (wide(x[i]) + wide(parts[3][c])) * wide(parts[2][c]));
  }
}

void PlainDecoder::scale_embedding(float* row) const {
  const auto scale = vector(Role::input_scale, 0, config_.width),
             offset = vector(Role::input_bias, 0, config_.width);
  for (std::size_t c = 0; c < scale.size(); ++c)
    row[c] = static_cast<float>((wide(row[c]) + wide(offset[c])) * wide(scale[c]));
}

PlainDecoder::Rows PlainDecoder::values_of_two_tokens(const Rows& input, int layer) {
  const std::int64_t half = std::int64_t{config_.kv_heads} * config_.head_dim / 2;
  const Rows now = product(input, matrix(Role::value, layer, half, config_.width));
  const Rows late = product(input, matrix(Role::value_delayed, layer, half, config_.width));
  Rows v(2 * now.size(), 0.0f);
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(now.size()) / half; ++t) {
    std::copy_n(now.begin() + t * half, half, v.begin() + 2 * t * half);
    const std::int64_t from = slips(Slip::values_not_delayed) ? t : t - 1;
    if (from >= 0) std::copy_n(late.begin() + from * half, half, v.begin() + (2 * t + 1) * half);
  }
  return v;
}

void PlainDecoder::convolve(Rows& q, Rows& k, int layer) const {
  const std::int64_t dim = config_.head_dim, heads = config_.heads, groups = config_.kv_heads,
                     share = heads / groups, channels = (heads + groups) * dim;
  const std::int64_t tokens = static_cast<std::int64_t>(q.size()) / (heads * dim);
  const bool reversed = slips(Slip::convolution_reversed), skipped = slips(Slip::convolution_skipped);
  const std::int64_t older = reversed ? 1 : 0, newer = 1 - older;
  const auto taps = vector(Role::conv_depthwise, layer, channels * 2),
             tap_bias = vector(Role::conv_depthwise_bias, layer, channels),
             grouped = vector(Role::conv_grouped, layer, channels * dim * 2),
             grouped_bias = vector(Role::conv_grouped_bias, layer, channels),
             temperature = vector(Role::key_temperature, layer, groups);
  const Rows old_q = q, old_k = k;
  // Before the first token there is nothing.
  const auto projected = [&](std::int64_t t, std::int64_t c) {
    if (t < 0) return 0.0;
    return wide(c < heads * dim ? old_q[at(t * heads * dim + c)]
                                : old_k[at(t * groups * dim + c - heads * dim)]);
  };
  const auto smoothed = [&](std::int64_t t, std::int64_t c) {
    return wide(taps[at(2 * c + older)]) * projected(t - 1, c) +
           wide(taps[at(2 * c + newer)]) * projected(t, c) + wide(tap_bias[at(c)]);
  };
  pool_.run(tokens, [&](std::int64_t t) {
    std::vector<double> before(at(channels)), now(at(channels)), y(at(channels));
    for (std::int64_t c = 0; c < channels; ++c) {
      before[at(c)] = smoothed(t - 1, c);
      now[at(c)] = smoothed(t, c);
    }
    for (std::int64_t o = 0; o < channels; ++o) {
      const std::int64_t head = o / dim * dim;
      double sum = wide(grouped_bias[at(o)]);
      for (std::int64_t i = 0; i < dim; ++i)
        sum += wide(grouped[at((o * dim + i) * 2 + older)]) * before[at(head + i)] +
               wide(grouped[at((o * dim + i) * 2 + newer)]) * now[at(head + i)];
      y[at(o)] = skipped ? projected(t, o) : sum;
    }
    const auto write = [&](std::int64_t head, double gain, float* out) {
      double square = 0.0;
      for (std::int64_t i = 0; i < dim; ++i) square += y[at(head * dim + i)] * y[at(head * dim + i)];
      const double scale =
          square > 0.0 ? gain * std::sqrt(static_cast<double>(dim)) / std::sqrt(square) : 0.0;
      for (std::int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(y[at(head * dim + i)] * scale);
    };
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t i = 0; i < dim; ++i) {
        const double key = projected(t, (heads + g) * dim + i);
        double queries = 0.0;
        for (std::int64_t j = g * share; j < (g + 1) * share; ++j) {
          const double query = projected(t, j * dim + i);
          y[at(j * dim + i)] += (query + key) / 2.0;
          queries += query;
        }
        y[at((heads + g) * dim + i)] += (queries / static_cast<double>(share) + key) / 2.0;
      }
      double gain = wide(temperature[at(g)]);
      if (config_.temperature_is_log) gain = std::exp(std::clamp(gain, 1e-7, 2.0));
      if (slips(Slip::temperature_ignored)) gain = 1.0;
      write(heads + g, gain, k.data() + (t * groups + g) * dim);
      for (std::int64_t j = g * share; j < (g + 1) * share; ++j)
        write(j, 1.0, q.data() + (t * heads + j) * dim);
    }
  });
}

}  // namespace kvtide
