// plain_recurrence.cpp: layers without attention, as their papers write them, token by token in double. short_conv.h and
// delta_net.h have the formulas and the sources; nothing here is theirs.
#include <algorithm>
#include <cmath>
#include <utility>

#include "validate/plain_carried.h"
#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

constexpr double kUnitEpsilon = 1e-6;

// Some rows of a matrix, in an order of their own.
PlainMatrix picked(PlainMatrix all, std::vector<std::int64_t> order) {
  const auto rows = static_cast<std::int64_t>(order.size());
  return {rows, all.columns,
          [all = std::move(all), order = std::move(order)](std::int64_t index, float* out) {
            all.row(order[as_index(index)], out);
          }};
}

// Parts of blocks that follow each other, one block for each head: `count` rows from `first` on of every block.
std::vector<std::int64_t> of_blocks(std::int64_t heads, std::int64_t block, std::int64_t first,
                                    std::int64_t count) {
  std::vector<std::int64_t> order;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t i = 0; i < count; ++i) order.push_back(head * block + first + i);
  return order;
}

}  // namespace

// Of each head its queries, then as many gates.
PlainDecoder::Rows PlainDecoder::gated_queries(const Rows& input, int layer, Rows& gates) {
  const std::int64_t heads = config_.heads, dim = config_.head_dim;
  const PlainMatrix both = matrix(Role::query, layer, 2 * heads * dim, config_.width);
  gates = product(input, picked(both, of_blocks(heads, 2 * dim, dim, dim)));
  return product(input, picked(both, of_blocks(heads, 2 * dim, 0, dim)));
}

void PlainDecoder::recurrence(Rows& x, int layer) {
  const Rows input = normed(x, Role::attention_norm, Role::attention_norm_bias, layer);
  const Mixer mixer = config_.layers[as_index(layer)].mixer;
  const Rows y = mixer == Mixer::short_convolution ? short_convolution(input, layer)
                 : mixer == Mixer::delta_net       ? delta_net(input, layer)
                                                   : state_space(input, layer);
  if (slips(Slip::residual_normed, Twist::Part::attention)) x = input;
  join(x, y, layer, kAttentionScales);
}

PlainDecoder::Rows PlainDecoder::short_convolution(const Rows& input, int layer) {
  const std::int64_t width = config_.width, tokens = std::ssize(input) / width;
  Rows thirds = product(input, matrix(Role::short_conv_in, layer, 3 * width, width));
  add_bias(thirds, Role::short_conv_in_bias, layer, 3 * width);
  const std::int64_t before = slips(Slip::convolution_gates_swapped) ? width : 0, behind = width - before;
  const Recurrence recurrence(*this, vector(Role::short_conv, layer, width * config_.conv_taps), width);
  const auto bias = vector(Role::short_conv_bias, layer, width);
  const auto gated = [&](Pos t, std::int64_t c) {
    return in_double(thirds[as_index(t * 3 * width + before + c)]) *
           in_double(thirds[as_index(t * 3 * width + 2 * width + c)]);
  };
  Rows y(input.size());
  pool_.run(tokens, [&](std::int64_t t) {
    for (std::int64_t c = 0; c < width; ++c) {
      const double sum =
          recurrence.convolved(t, c, gated) + (bias.empty() ? 0.0 : in_double(bias[as_index(c)]));
      y[as_index(t * width + c)] =
          static_cast<float>(sum * in_double(thirds[as_index(t * 3 * width + behind + c)]));
    }
  });
  Rows out = product(y, matrix(Role::short_conv_out, layer, width, width));
  add_bias(out, Role::short_conv_out_bias, layer, width);
  return out;
}

PlainDecoder::Rows PlainDecoder::delta_net(const Rows& input, int layer) {
  const DeltaNetConfig& net = *config_.delta;
  const std::int64_t width = config_.width, channels = net.channels(), values = net.value_width();
  const std::int64_t heads = net.value_heads, tokens = std::ssize(input) / width, keys = net.key_width();
  const std::int64_t group = heads / net.key_heads, block = 2 * net.key_dim + 2 * group * net.value_dim;
  Rows mixed, gates, alpha, beta;
  if (weights_->has(Role::delta_qkvz, layer)) {
    const PlainMatrix all = matrix(Role::delta_qkvz, layer, channels + values, width);
    std::vector<std::int64_t> order = of_blocks(net.key_heads, block, 0, net.key_dim);
    for (const auto& part : {of_blocks(net.key_heads, block, net.key_dim, net.key_dim),
                             of_blocks(net.key_heads, block, 2 * net.key_dim, group * net.value_dim)})
      order.insert(order.end(), part.begin(), part.end());
    mixed = product(input, picked(all, std::move(order)));
    gates = product(input, picked(all, of_blocks(net.key_heads, block, block - group * net.value_dim,
                                                 group * net.value_dim)));
  } else {
    mixed = product(input, matrix(Role::delta_qkv, layer, channels, width));
    gates = product(input, matrix(Role::delta_z, layer, values, width));
  }
  if (weights_->has(Role::delta_ba, layer)) {
    const PlainMatrix all = matrix(Role::delta_ba, layer, 2 * heads, width);
    beta = product(input, picked(all, of_blocks(net.key_heads, 2 * group, 0, group)));
    alpha = product(input, picked(all, of_blocks(net.key_heads, 2 * group, group, group)));
  } else {
    beta = product(input, matrix(Role::delta_beta, layer, heads, width));
    alpha = product(input, matrix(Role::delta_alpha, layer, heads, width));
  }
  const Recurrence recurrence(*this, vector(Role::delta_conv, layer, channels * net.taps), channels);
  const bool logarithms = weights_->has(Role::delta_log_decay, layer);
  const auto decay = vector(logarithms ? Role::delta_log_decay : Role::delta_decay, layer, heads),
             time = vector(Role::delta_time_bias, layer, heads),
             norm = vector(Role::delta_norm, layer, net.value_dim);

  // Queries, keys and values of every token, behind the convolution.
  std::vector<double> s(as_index(tokens * channels));
  pool_.run(tokens, [&](std::int64_t t) {
    double* row = s.data() + t * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      const double sum = recurrence.convolved(t, c, [&](Pos from, std::int64_t channel) {
        return in_double(mixed[as_index(from * channels + channel)]);
      });
      row[c] = slips(Slip::activation_skipped) ? sum : sum * logistic(sum);
    }
    for (int head = 0; head < 2 * net.key_heads; ++head) {
      double* part = row + std::int64_t{head} * net.key_dim;
      double square = kUnitEpsilon;
      for (int i = 0; i < net.key_dim; ++i) square += part[i] * part[i];
      double scale = slips(Slip::keys_not_normed) ? 1.0 : 1.0 / std::sqrt(square);
      if (head < net.key_heads) scale /= std::sqrt(static_cast<double>(net.key_dim));
      for (int i = 0; i < net.key_dim; ++i) part[i] *= scale;
    }
  });

  Rows y(as_index(tokens * values));
  const bool tiled = net.tiled != slips(Slip::value_heads_grouped);
  pool_.run(heads, [&](std::int64_t head) {
    const std::int64_t key_head = tiled ? head % net.key_heads : head / group, dim = net.value_dim;
    std::vector<double> state(as_index(net.key_dim * dim), 0.0), old(as_index(dim)), read(as_index(dim));
    const double rate_of_decay =
        logarithms ? -std::exp(in_double(decay[as_index(head)])) : in_double(decay[as_index(head)]);
    for (Pos t = 0; t < tokens; ++t) {
      if (t > 0 && !recurrence.handed(t - 1, t, Slip::state_forgotten)) state.assign(state.size(), 0.0);
      const double *query = s.data() + t * channels + key_head * net.key_dim, *key = query + keys;
      const double* value = s.data() + t * channels + 2 * keys + head * dim;
      double keep = std::exp(rate_of_decay * log1p_exp(in_double(alpha[as_index(t * heads + head)]) +
                                                       in_double(time[as_index(head)])));
      if (slips(Slip::state_decayed_twice)) keep *= keep;
      if (slips(Slip::state_not_decayed)) keep = 1.0;
      const double rate =
          slips(Slip::rate_ignored) ? 1.0 : logistic(in_double(beta[as_index(t * heads + head)]));
      old.assign(old.size(), 0.0);
      read.assign(read.size(), 0.0);
      for (std::int64_t i = 0; i < net.key_dim; ++i)
        for (std::int64_t j = 0; j < dim; ++j) {
          if (slips(Slip::state_read_before)) read[as_index(j)] += query[i] * state[as_index(i * dim + j)];
          state[as_index(i * dim + j)] *= keep;
          old[as_index(j)] += key[i] * state[as_index(i * dim + j)];
        }
      if (slips(Slip::delta_ignored)) old.assign(old.size(), 0.0);
      for (std::int64_t i = 0; i < net.key_dim; ++i)
        for (std::int64_t j = 0; j < dim; ++j) {
          state[as_index(i * dim + j)] += key[i] * rate * (value[j] - old[as_index(j)]);
          if (!slips(Slip::state_read_before)) read[as_index(j)] += query[i] * state[as_index(i * dim + j)];
        }
      const float* gate = gates.data() + t * values + head * dim;
      const auto open = [&](std::int64_t j) {
        return slips(Slip::gate_skipped) ? 1.0 : in_double(gate[j]) * logistic(in_double(gate[j]));
      };
      const bool early = slips(Slip::gate_before_norm);
      double square = 0.0;
      for (std::int64_t j = 0; j < dim; ++j) {
        if (early) read[as_index(j)] *= open(j);
        square += read[as_index(j)] * read[as_index(j)];
      }
      const double scale =
          1.0 / std::sqrt(square / static_cast<double>(dim) + in_double(config_.norm_epsilon));
      for (std::int64_t j = 0; j < dim; ++j)
        y[as_index(t * values + head * dim + j)] = static_cast<float>(
            read[as_index(j)] * scale * in_double(norm[as_index(j)]) * (early ? 1.0 : open(j)));
    }
  });
  return product(y, matrix(Role::delta_out, layer, width, values));
}

}  // namespace kvtide
