// plain_state_space.cpp: Mamba-2 as its paper writes it, token by token in double. state_space.h has the formulas and the
// source; nothing here is its.
#include <cmath>

#include "validate/plain_carried.h"
#include "validate/plain_decoder.h"

namespace kvtide {

// The recurrence of every head over all tokens: behind it [tokens][inner]. mixed: [tokens][channels], behind the
// convolution; steps: [tokens][heads], from the projection.
std::vector<double> PlainDecoder::scanned(const std::vector<double>& mixed, const Rows& steps, int layer,
                                          const Recurrence& recurrence) {
  const StateSpaceConfig& space = *config_.state_space;
  const std::int64_t channels = space.channels(), inner = space.inner(), heads = space.heads,
                     dim = space.head_dim, n = space.state,
                     tokens = static_cast<std::int64_t>(mixed.size()) / channels;
  const bool logarithms = weights_->has(Role::space_log_decay, layer);
  const auto decay = vector(logarithms ? Role::space_log_decay : Role::space_decay, layer, heads),
             bias = vector(Role::space_time_bias, layer, heads),
             skip = vector(Role::space_skip, layer, heads);
  std::vector<double> read(as_index(tokens * inner), 0.0);
  pool_.run(heads, [&](std::int64_t head) {
    const std::int64_t group =
        slips(Slip::groups_by_remainder) ? head % space.groups : head / (heads / space.groups);
    const double rate_of_decay =
        logarithms ? -std::exp(in_double(decay[as_index(head)])) : in_double(decay[as_index(head)]);
    std::vector<double> state(as_index(n * dim), 0.0);
    for (Pos t = 0; t < tokens; ++t) {
      if (t > 0 && !recurrence.handed(t - 1, t, Slip::state_forgotten)) state.assign(state.size(), 0.0);
      const double* x = mixed.data() + t * channels + head * dim;
      const double *write = mixed.data() + t * channels + inner + group * n, *from = write + space.groups * n;
      double* out = read.data() + t * inner + head * dim;
      const double step = log1p_exp(in_double(steps[as_index(t * heads + head)]) +
                                    (slips(Slip::time_bias_dropped) ? 0.0 : in_double(bias[as_index(head)])));
      double keep = std::exp(rate_of_decay * step);
      if (slips(Slip::state_decayed_twice)) keep *= keep;
      if (slips(Slip::state_not_decayed)) keep = 1.0;
      const double rate = slips(Slip::rate_ignored) ? 1.0 : step;
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < dim; ++j) {
          double& cell = state[as_index(i * dim + j)];
          if (slips(Slip::state_read_before)) out[j] += from[i] * cell;
          cell = keep * cell + write[i] * rate * x[j];
          if (!slips(Slip::state_read_before)) out[j] += from[i] * cell;
        }
      if (!slips(Slip::skip_dropped))
        for (std::int64_t j = 0; j < dim; ++j) out[j] += in_double(skip[as_index(head)]) * x[j];
    }
  });
  return read;
}

// What the heads read, gated and then normed group by group.
PlainDecoder::Rows PlainDecoder::gated_and_normed(const std::vector<double>& read, const Rows& gates,
                                                  int layer) const {
  const StateSpaceConfig& space = *config_.state_space;
  const std::int64_t inner = space.inner(),
                     group = slips(Slip::groups_normed_together) ? inner : inner / space.groups;
  const bool by_groups = weights_->has(Role::space_group_norm, layer);
  const auto norm = vector(by_groups ? Role::space_group_norm : Role::space_norm, layer, inner);
  const bool late = slips(Slip::gate_behind_norm);
  Rows y(read.size());
  const auto open = [&](std::size_t i) {
    return slips(Slip::gate_skipped) ? 1.0 : in_double(gates[i]) * logistic(in_double(gates[i]));
  };
  for (std::size_t start = 0; start < read.size(); start += as_index(group)) {
    double square = 0.0;
    for (std::size_t i = start; i < start + as_index(group); ++i) {
      const double value = read[i] * (late ? 1.0 : open(i));
      square += value * value;
    }
    const double scale =
        1.0 / std::sqrt(square / static_cast<double>(group) + in_double(config_.norm_epsilon));
    for (std::size_t i = start; i < start + as_index(group); ++i)
      y[i] = static_cast<float>(read[i] * open(i) * scale * in_double(norm[i % as_index(inner)]));
  }
  return y;
}

PlainDecoder::Rows PlainDecoder::state_space(const Rows& input, int layer) {
  const StateSpaceConfig& space = *config_.state_space;
  const std::int64_t width = config_.width, channels = space.channels(), inner = space.inner(),
                     all = inner + channels + space.heads, tokens = std::ssize(input) / width;
  Rows projected = product(input, matrix(Role::space_in, layer, all, width));
  if (space.biased) add_bias(projected, Role::space_in_bias, layer, all);
  const auto bias = space.conv_biased ? vector(Role::space_conv_bias, layer, channels) : std::vector<float>();
  const Recurrence recurrence(*this, vector(Role::space_conv, layer, channels * space.taps), channels);
  std::vector<double> mixed(as_index(tokens * channels));
  pool_.run(tokens, [&](std::int64_t t) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const double sum = recurrence.convolved(t, c, [&](Pos from, std::int64_t channel) {
        return in_double(projected[as_index(from * all + inner + channel)]);
      }) + (bias.empty() ? 0.0 : in_double(bias[as_index(c)]));
      mixed[as_index(t * channels + c)] = slips(Slip::activation_skipped) ? sum : sum * logistic(sum);
    }
  });
  Rows gates, steps;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto row = projected.begin() + t * all;
    gates.insert(gates.end(), row, row + inner);
    steps.insert(steps.end(), row + inner + channels, row + all);
  }
  Rows out = product(gated_and_normed(scanned(mixed, steps, layer, recurrence), gates, layer),
                     matrix(Role::space_out, layer, width, inner));
  if (space.biased) add_bias(out, Role::space_out_bias, layer, width);
  return out;
}

}  // namespace kvtide
