// plain_hybrid.cpp: what zaya has of its own, as its papers write it, token by token in double: convolved
// queries and keys, values of two tokens, routed experts, a scaled residual stream. cca.h and experts.h have
// the formulas and the sources; nothing here is theirs.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

constexpr double kNearTie = 0.5;        // of probabilities
constexpr std::size_t kMostOthers = 3;  // experts that are told beside the one that was taken

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
double wide(float x) { return static_cast<double>(x); }
double gelu_of(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }

}  // namespace

void PlainDecoder::join(Rows& x, const Rows& y, int layer, const Role (&scales)[4]) const {
  const Twist::Part part = &scales == &kAttentionScales ? Twist::Part::attention : Twist::Part::feed_forward;
  if (!config_.scaled_residual || slips(Slip::residual_unscaled, part)) {
    const float times = slips(Slip::residual_dropped, part) ? 0.0f
                        : slips(Slip::residual_twice, part) ? 2.0f
                                                            : 1.0f;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = times * x[i] + y[i];
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

// Also leaves the router's states for the next layer.
PlainDecoder::Rows PlainDecoder::router_scores(const Rows& input, int layer) {
  const std::int64_t n = config_.experts->router_width, slots = config_.experts->slots();
  if (n == 0) return product(input, matrix(Role::router_out, layer, slots, config_.width));
  Rows z = product(input, matrix(Role::router_down, layer, n, config_.width));
  add_bias(z, Role::router_down_bias, layer, n);
  if (layer > 0 && !slips(Slip::carry_dropped)) {
    const auto carry = vector(Role::router_carry, layer, n);
    for (std::size_t i = 0; i < z.size(); ++i) z[i] += router_[i] * carry[i % at(n)];
  }
  router_ = z;
  const auto weight = vector(Role::router_norm, layer, n);
  for (std::size_t start = 0; start < z.size(); start += at(n)) {
    double square = 0.0;
    for (std::size_t i = 0; i < at(n); ++i) square += wide(z[start + i]) * wide(z[start + i]);
    const double scale = 1.0 / std::sqrt(square / static_cast<double>(n) + wide(config_.norm_epsilon));
    for (std::size_t i = 0; i < at(n); ++i)
      z[start + i] = static_cast<float>(wide(z[start + i]) * scale * wide(weight[i]));
  }
  const auto layer_of = [&](Role matrix_role, Role bias) {
    z = product(z, matrix(matrix_role, layer, n, n));
    add_bias(z, bias, layer, n);
    for (float& value : z) value = static_cast<float>(gelu_of(wide(value)));
  };
  layer_of(Role::router_first, Role::router_first_bias);
  layer_of(Role::router_second, Role::router_second_bias);
  return product(z, matrix(Role::router_out, layer, slots, n));
}

PlainDecoder::Rows PlainDecoder::expert(const Rows& input, int layer, std::int64_t chosen, double share) {
  const std::int64_t width = config_.width, hidden = expert_width(config_);
  Rows out = input;
  if (chosen == config_.experts->count) {
    if ((config_.experts->skip == SkipSlot::zero) != slips(Slip::skip_otherwise)) share = 0.0;
  } else {
    const auto part = [&](Role role, std::int64_t rows, std::int64_t columns, std::int64_t first,
                          std::int64_t of) {
      return weights_->matrix(role, layer, rows, columns, {static_cast<int>(chosen), first, of});
    };
    const bool together = weights_->has(Role::expert_gate_up, layer);
    const Rows gate = product(input, together ? part(Role::expert_gate_up, hidden, width, 0, 2 * hidden)
                                              : part(Role::expert_gate, hidden, width, 0, hidden));
    Rows up = product(input, together ? part(Role::expert_gate_up, hidden, width, hidden, 2 * hidden)
                                      : part(Role::expert_up, hidden, width, 0, hidden));
    for (std::size_t i = 0; i < up.size(); ++i)
      up[i] = static_cast<float>(wide(gate[i]) / (1.0 + std::exp(-wide(gate[i]))) * wide(up[i]));
    out = product(up, part(Role::expert_down, width, hidden, 0, width));
  }
  for (float& value : out) value = static_cast<float>(wide(value) * share);
  return out;
}

// What a router's scores make of every slot.
std::vector<double> PlainDecoder::router_shares(std::span<const float> scores) const {
  std::vector<double> shares;
  if (config_.experts->sigmoid) {
    for (const float score : scores) shares.push_back(1.0 / (1.0 + std::exp(-wide(score))));
    return shares;
  }
  double sum = 0.0;
  const double top = wide(*std::max_element(scores.begin(), scores.end()));
  for (const float score : scores) sum += shares.emplace_back(std::exp(wide(score) - top));
  for (double& share : shares) share /= sum;
  return shares;
}

// What every token passes beside those.
PlainDecoder::Rows PlainDecoder::shared_expert(const Rows& input, int layer) {
  const std::int64_t width = config_.width, n = config_.experts->shared;
  const Rows gate = product(input, matrix(Role::shared_gate, layer, n, width));
  Rows up = product(input, matrix(Role::shared_up, layer, n, width));
  for (std::size_t i = 0; i < up.size(); ++i)
    up[i] = static_cast<float>(wide(gate[i]) / (1.0 + std::exp(-wide(gate[i]))) * wide(up[i]));
  Rows out = product(up, matrix(Role::shared_down, layer, width, n));
  if (!config_.experts->shared_gated) return out;
  const auto share = vector(Role::shared_share, layer, width);
  double score = 0.0;
  for (std::size_t i = 0; i < share.size(); ++i) score += wide(share[i]) * wide(input[i]);
  for (float& value : out) value = static_cast<float>(wide(value) / (1.0 + std::exp(-score)));
  return out;
}

// What the chosen experts make of one token's input, together.
PlainDecoder::Rows PlainDecoder::mixture(const Rows& input, int layer, std::span<const std::int64_t> chosen,
                                         const std::vector<double>& shares) {
  const ExpertsConfig& e = *config_.experts;
  double sum = 0.0;
  for (const std::int64_t slot : chosen) sum += shares[at(slot)];
  const double times = wide(e.share_scale) / (e.shares_sum_to_1 ? sum + wide(e.sum_epsilon) : 1.0);
  Rows out;
  for (const std::int64_t slot : chosen) {
    const double share = slips(Slip::share_ignored) ? 1.0 : shares[at(slot)] * times;
    const Rows one = expert(input, layer, slot, share);
    if (out.empty()) out.assign(one.size(), 0.0f);
    for (std::size_t i = 0; i < one.size(); ++i) out[i] += one[i];
  }
  if (e.shared > 0 && !slips(Slip::shared_expert_dropped)) {
    const Rows one = shared_expert(input, layer);
    for (std::size_t i = 0; i < one.size(); ++i) out[i] += one[i];
  }
  return out;
}

void PlainDecoder::experts(Rows& x, int layer) {
  const std::int64_t width = config_.width, slots = config_.experts->slots();
  const auto chosen = static_cast<std::ptrdiff_t>(config_.experts->chosen);
  const Rows input = normed(x, Role::feed_forward_norm, Role::feed_forward_norm_bias, layer);
  const Rows scores = router_scores(input, layer);
  const auto balance = config_.experts->router_width > 0 || config_.experts->balanced
                           ? vector(Role::router_balance, layer, slots)
                           : std::vector<float>();
  const bool balanced = !balance.empty() && !slips(Slip::balance_ignored);
  Rows y;
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(x.size()) / width; ++t) {
    const auto shares = router_shares(std::span(scores).subspan(at(t * slots), at(slots)));
    // The best come first, the balance counting for the choice only.
    const auto wanted = [&](std::int64_t e) {
      return shares[at(e)] + (balanced ? wide(balance[at(e)]) : 0.0);
    };
    std::vector<std::int64_t> order(at(slots));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return wanted(a) > wanted(b); });
    // Where the choice is close it is about the last place.
    if (const auto choice = choices_.find({layer, t}); choice != choices_.end()) {
      const auto taken = std::find(order.begin(), order.end(), choice->second);
      if (taken < order.begin() + chosen)
        std::rotate(taken, taken + 1, order.begin() + chosen);
      else
        std::rotate(order.begin() + chosen - 1, taken, taken + 1);
    }
    if (slips(Slip::second_expert) && order.size() > at(chosen))
      std::swap(order[at(chosen - 1)], order[at(chosen)]);
    const std::int64_t last = order[at(chosen - 1)];
    for (std::ptrdiff_t i = 0; i < chosen; ++i) used_.insert({layer, order[at(i)]});
    const Rows one(input.begin() + t * width, input.begin() + (t + 1) * width);
    const Rows out = mixture(one, layer, {order.data(), at(chosen)}, shares);
    y.insert(y.end(), out.begin(), out.end());
    const auto tie = [&](std::int64_t slot, double margin, const Rows& result) {
      NearTie made{
          layer, t, static_cast<int>(slot), margin, {x.begin() + t * width, x.begin() + (t + 1) * width}};
      join(made.stream, result, layer, kFeedForwardScales);
      ties_.push_back(std::move(made));
    };
    double nearest = kNearTie;
    for (std::size_t other = at(chosen); other < std::min(order.size(), at(chosen) + kMostOthers); ++other) {
      const double margin = std::abs(wanted(last) - wanted(order[other]));
      if (margin >= kNearTie) continue;
      nearest = std::min(nearest, margin);
      std::vector<std::int64_t> instead(order.begin(), order.begin() + chosen);
      instead.back() = order[other];
      tie(order[other], margin, mixture(one, layer, instead, shares));
    }
    if (both_ways_ && nearest < kNearTie) tie(last, nearest, out);
  }
  join(x, y, layer, kFeedForwardScales);
}

}  // namespace kvtide
