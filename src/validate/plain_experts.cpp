// plain_experts.cpp: routed experts as their papers write them, token by token in double. experts.h has the formulas and the
// sources; nothing here is its.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "validate/plain_carried.h"
#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

constexpr double kNearTie = 0.5;        // of probabilities
constexpr std::size_t kMostOthers = 3;  // experts that are told beside the one that was taken

double gelu_of(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }

}  // namespace

// Also leaves the router's states for the next layer.
PlainDecoder::Rows PlainDecoder::router_scores(const Rows& input, int layer) {
  const std::int64_t n = config_.experts->router_width, slots = config_.experts->slots();
  if (n == 0) {
    Rows scores = product(input, matrix(Role::router_out, layer, slots, config_.width));
    if (config_.experts->biased) add_bias(scores, Role::router_out_bias, layer, slots);
    return scores;
  }
  Rows z = product(input, matrix(Role::router_down, layer, n, config_.width));
  add_bias(z, Role::router_down_bias, layer, n);
  if (layer > 0 && !slips(Slip::carry_dropped)) {
    const auto carry = vector(Role::router_carry, layer, n);
    for (std::size_t i = 0; i < z.size(); ++i) z[i] += router_[i] * carry[i % as_index(n)];
  }
  router_ = z;
  const auto weight = vector(Role::router_norm, layer, n);
  for (std::size_t start = 0; start < z.size(); start += as_index(n)) {
    double square = 0.0;
    for (std::size_t i = 0; i < as_index(n); ++i) square += in_double(z[start + i]) * in_double(z[start + i]);
    const double scale = 1.0 / std::sqrt(square / static_cast<double>(n) + in_double(config_.norm_epsilon));
    for (std::size_t i = 0; i < as_index(n); ++i)
      z[start + i] = static_cast<float>(in_double(z[start + i]) * scale * in_double(weight[i]));
  }
  const auto layer_of = [&](Role matrix_role, Role bias) {
    z = product(z, matrix(matrix_role, layer, n, n));
    add_bias(z, bias, layer, n);
    for (float& value : z) value = static_cast<float>(gelu_of(in_double(value)));
  };
  layer_of(Role::router_first, Role::router_first_bias);
  layer_of(Role::router_second, Role::router_second_bias);
  return product(z, matrix(Role::router_out, layer, slots, n));
}

PlainDecoder::Rows PlainDecoder::expert(const Rows& input, int layer, std::int64_t chosen, double share) {
  Rows out = input;
  if (chosen == config_.experts->count) {
    if ((config_.experts->skip == SkipSlot::zero) != slips(Slip::skip_otherwise)) share = 0.0;
  } else {
    out = inside_expert(input, layer, chosen);
  }
  for (float& value : out) value = static_cast<float>(in_double(value) * share);
  return out;
}

PlainDecoder::Rows PlainDecoder::inside_expert(const Rows& input, int layer, std::int64_t chosen) {
  const std::int64_t width = config_.width, hidden = expert_width(config_);
  const ExpertsConfig& e = *config_.experts;
  const bool together = weights_->has(Role::expert_gate_up, layer);
  // Rows of a matrix that holds gate and up in turn, or one behind the other.
  const std::int64_t step = e.gate_up_turns ? 2 : 1, behind = e.gate_up_turns ? 1 : hidden;
  const auto half = [&](Role own, std::int64_t first) {
    if (!together)
      return product(input,
                     weights_->matrix(own, layer, hidden, width, {static_cast<int>(chosen), 0, hidden}));
    if (!e.gate_up_turns)
      return product(input, weights_->matrix(Role::expert_gate_up, layer, hidden, width,
                                             {static_cast<int>(chosen), first, 2 * hidden}));
    const PlainMatrix both = weights_->matrix(Role::expert_gate_up, layer, 2 * hidden, width,
                                              {static_cast<int>(chosen), 0, 2 * hidden});
    return product(input, {hidden, width, [&both, first, step](std::int64_t index, float* out) {
                             both.row(first + index * step, out);
                           }});
  };
  Rows gate = config_.gated ? half(Role::expert_gate, 0) : Rows(), up = half(Role::expert_up, behind);
  if (e.biased && weights_->has(Role::expert_gate_up_bias, layer)) {
    const auto bias = vector(Role::expert_gate_up_bias, layer, e.count * 2 * hidden);
    for (std::int64_t i = 0; i < hidden; ++i) {
      gate[as_index(i)] += bias[as_index(chosen * 2 * hidden + i * step)];
      up[as_index(i)] += bias[as_index(chosen * 2 * hidden + behind + i * step)];
    }
  } else if (e.biased) {
    add_expert_bias(gate, Role::expert_gate_bias, layer, chosen);
    add_expert_bias(up, Role::expert_up_bias, layer, chosen);
  }
  if (e.clamped)
    clamp_and_gate(gate, up);
  else
    activate(gate, up);
  Rows out = product(
      up, weights_->matrix(Role::expert_down, layer, width, hidden, {static_cast<int>(chosen), 0, width}));
  if (e.biased) add_expert_bias(out, Role::expert_down_bias, layer, chosen);
  return out;
}

void PlainDecoder::add_expert_bias(Rows& y, Role role, int layer, std::int64_t chosen) const {
  const auto bias = vector(role, layer, config_.experts->count * std::ssize(y));
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[as_index(chosen) * y.size() + i];
}

void PlainDecoder::clamp_and_gate(const Rows& gate, Rows& up) const {
  const double alpha = in_double(config_.experts->clamped->alpha),
               limit = in_double(config_.experts->clamped->limit);
  const bool clamps = !slips(Slip::gate_unclamped);
  for (std::size_t i = 0; i < up.size(); ++i) {
    const double g = clamps ? std::min(in_double(gate[i]), limit) : in_double(gate[i]),
                 u = clamps ? std::clamp(in_double(up[i]), -limit, limit) : in_double(up[i]);
    up[i] = static_cast<float>((u + 1.0) * g / (1.0 + std::exp(-alpha * g)));
  }
}

// What a router's scores make of every slot.
std::vector<double> PlainDecoder::router_shares(std::span<const float> scores) const {
  std::vector<double> shares;
  if (config_.experts->sigmoid) {
    for (const float score : scores) shares.push_back(1.0 / (1.0 + std::exp(-in_double(score))));
    return shares;
  }
  double sum = 0.0;
  const double top = in_double(*std::max_element(scores.begin(), scores.end()));
  for (const float score : scores) sum += shares.emplace_back(std::exp(in_double(score) - top));
  for (double& share : shares) share /= sum;
  return shares;
}

// What every token passes beside those.
PlainDecoder::Rows PlainDecoder::shared_expert(const Rows& input, int layer) {
  const std::int64_t width = config_.width, n = config_.experts->shared;
  Rows gate, up;
  if (weights_->has(Role::shared_gate_up, layer)) {
    const Rows both = product(input, matrix(Role::shared_gate_up, layer, 2 * n, width));
    gate.assign(both.begin(), both.begin() + n);
    up.assign(both.begin() + n, both.end());
  } else {
    if (config_.gated) gate = product(input, matrix(Role::shared_gate, layer, n, width));
    up = product(input, matrix(Role::shared_up, layer, n, width));
  }
  activate(gate, up);
  Rows out = product(up, matrix(Role::shared_down, layer, width, n));
  if (!config_.experts->shared_gated) return out;
  const auto share = vector(Role::shared_share, layer, width);
  double score = 0.0;
  for (std::size_t i = 0; i < share.size(); ++i) score += in_double(share[i]) * in_double(input[i]);
  for (float& value : out) value = static_cast<float>(in_double(value) / (1.0 + std::exp(-score)));
  return out;
}

// What the chosen experts make of one token's input, together.
PlainDecoder::Rows PlainDecoder::mixture(const Rows& input, int layer, std::span<const std::int64_t> chosen,
                                         const std::vector<double>& shares) {
  const ExpertsConfig& e = *config_.experts;
  double sum = 0.0;
  for (const std::int64_t slot : chosen) sum += shares[as_index(slot)];
  const double times = in_double(e.share_scale) / (e.shares_sum_to_1 ? sum + in_double(e.sum_epsilon) : 1.0);
  Rows out;
  for (const std::int64_t slot : chosen) {
    const double share = slips(Slip::share_ignored) ? 1.0 : shares[as_index(slot)] * times;
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

// The slots, the most wanted first. Of experts in groups those of groups whose best two are best stand before all others.
std::vector<std::int64_t> PlainDecoder::ranked(const std::vector<double>& wanted) const {
  const ExpertsConfig& e = *config_.experts;
  std::vector<std::int64_t> order(wanted.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto size = static_cast<std::ptrdiff_t>(wanted.size()) / e.groups;
  std::vector<bool> open(wanted.size(), true);
  if (e.groups_chosen < e.groups && !slips(Slip::expert_groups_ignored)) {
    std::vector<std::pair<double, std::int64_t>> groups;
    for (std::int64_t g = 0; g < e.groups; ++g) {
      std::vector<double> of(wanted.begin() + g * size, wanted.begin() + (g + 1) * size);
      std::sort(of.rbegin(), of.rend());
      groups.emplace_back(-of[0] - of[1], g);
    }
    std::stable_sort(groups.begin(), groups.end());
    for (std::int64_t g = e.groups_chosen; g < e.groups; ++g)
      for (std::ptrdiff_t i = 0; i < size; ++i) open[as_index(groups[as_index(g)].second * size + i)] = false;
  }
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return open[as_index(a)] != open[as_index(b)] ? open[as_index(a)]
                                                  : wanted[as_index(a)] > wanted[as_index(b)];
  });
  return order;
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
    const auto shares = router_shares(std::span(scores).subspan(as_index(t * slots), as_index(slots)));
    // The best come first, the balance counting for the choice only.
    std::vector<double> all = shares;
    for (std::size_t e = 0; balanced && e < all.size(); ++e) all[e] += in_double(balance[e]);
    const auto wanted = [&](std::int64_t e) { return all[as_index(e)]; };
    std::vector<std::int64_t> order = ranked(all);
    // Where the choice is close it is about the last place.
    if (const auto choice = choices_.find({layer, t}); choice != choices_.end()) {
      const auto taken = std::find(order.begin(), order.end(), choice->second);
      if (taken < order.begin() + chosen)
        std::rotate(taken, taken + 1, order.begin() + chosen);
      else
        std::rotate(order.begin() + chosen - 1, taken, taken + 1);
    }
    if (slips(Slip::second_expert) && order.size() > as_index(chosen))
      std::swap(order[as_index(chosen - 1)], order[as_index(chosen)]);
    const std::int64_t last = order[as_index(chosen - 1)];
    for (std::ptrdiff_t i = 0; i < chosen; ++i) used_.insert({layer, order[as_index(i)]});
    const Rows one(input.begin() + t * width, input.begin() + (t + 1) * width);
    const Rows out = mixture(one, layer, {order.data(), as_index(chosen)}, shares);
    y.insert(y.end(), out.begin(), out.end());
    const auto tie = [&](std::int64_t slot, double margin, const Rows& result) {
      NearTie made{
          layer, t, static_cast<int>(slot), margin, {x.begin() + t * width, x.begin() + (t + 1) * width}};
      join(made.stream, result, layer, kFeedForwardScales);
      ties_.push_back(std::move(made));
    };
    double nearest = kNearTie;
    for (std::size_t other = as_index(chosen); other < std::min(order.size(), as_index(chosen) + kMostOthers);
         ++other) {
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
