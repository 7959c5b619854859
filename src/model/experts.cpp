#include "model/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "base/as_size.h"
#include "model/activate.h"
#include "model/for_rows.h"

namespace kvtide {
namespace {

// 0.5 x (1 + erf(x / sqrt(2)))
float gelu(float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f)); }

struct Choice {
  int slot;
  float share;
};

void softmax(std::span<float> scores) {
  const float highest = *std::max_element(scores.begin(), scores.end());
  float sum = 0.0f;
  for (float& score : scores) sum += score = std::exp(score - highest);
  for (float& score : scores) score /= sum;
}

// Which experts lie in the groups whose best two are best; empty: all.
std::vector<bool> allowed_experts(const ExpertsConfig& config, std::span<const float> scores,
                                  const std::vector<float>& balance) {
  if (config.groups_chosen == config.groups) return {};
  const auto count = static_cast<std::size_t>(config.groups), size = scores.size() / count;
  std::vector<float> best(count);
  for (std::size_t g = 0; g < count; ++g) {
    std::vector<float> group(size);
    for (std::size_t i = 0; i < size; ++i)
      group[i] = scores[g * size + i] + (balance.empty() ? 0.0f : balance[g * size + i]);
    std::partial_sort(group.begin(), group.begin() + 2, group.end(), std::greater<>());
    best[g] = group[0] + group[1];
  }
  std::vector<bool> allowed(scores.size());
  for (std::size_t g = 0; g < count; ++g) {
    std::size_t better = 0;  // of equals the first
    for (std::size_t other = 0; other < count; ++other)
      better += best[other] > best[g] || (best[other] == best[g] && other < g);
    for (std::size_t i = 0; i < size; ++i)
      allowed[g * size + i] = better < static_cast<std::size_t>(config.groups_chosen);
  }
  return allowed;
}

// The best of the scores, which become shares, best first; of equals the first.
void choose(const ExpertsConfig& config, std::span<float> scores, const std::vector<float>& balance,
            std::span<Choice> out) {
  if (config.sigmoid)
    for (float& score : scores) score = 1.0f / (1.0f + std::exp(-score));
  else
    softmax(scores);
  const std::vector<bool> allowed = allowed_experts(config, scores, balance);
  const auto wanted = [&](std::size_t i) { return balance.empty() ? scores[i] : scores[i] + balance[i]; };
  const auto taken = [&](std::size_t i, std::size_t chosen) {
    return std::any_of(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(chosen),
                       [&](const Choice& choice) { return choice.slot == static_cast<int>(i); });
  };
  float sum = 0.0f;
  for (std::size_t n = 0; n < out.size(); ++n) {
    std::size_t best = scores.size();
    for (std::size_t i = 0; i < scores.size(); ++i)
      if ((allowed.empty() || allowed[i]) && !taken(i, n) &&
          (best == scores.size() || wanted(i) > wanted(best)))
        best = i;
    out[n] = {static_cast<int>(best), scores[best]};
    sum += scores[best];
  }
  for (Choice& choice : out) {
    if (config.shares_sum_to_1) choice.share /= sum + config.sum_epsilon;
    if (config.share_scale != 1.0f) choice.share *= config.share_scale;
  }
}

// One call for the tokens of one layer.
class Routing {
 public:
  Routing(const ExpertsContext& context, const ExpertsScratch& scratch, std::int64_t first, std::int64_t last,
          float* x)
      : context_(context),
        config_(context.config),
        w_(context.weights),
        s_(scratch),
        first_(first),
        count_(last - first),
        router_(config_.experts->router_width),
        chosen_(config_.experts->chosen),
        slots_(config_.experts->slots()),
        x_(x),
        choices_(as_size(count_ * chosen_)) {}

  void run() {
    if (router_ > 0)
      score_by_layers();
    else
      multiply_f32(w_.router_out, context_.routed != nullptr ? context_.routed : x_, s_.scores);
    for_rows(context_.pool, 0, count_, [&](std::int64_t t) {
      if (!w_.biases.router.empty())
        context_.rows.add(s_.scores + t * slots_, w_.biases.router.data(), slots_);
      choose(*config_.experts, {s_.scores + t * slots_, as_size(slots_)}, w_.balance,
             {choices_.data() + t * chosen_, as_size(chosen_)});
      for (std::int64_t n = 0; !w_.expert_scale.empty() && n < chosen_; ++n) {
        Choice& choice = choices_[as_size(t * chosen_ + n)];
        choice.share *= w_.expert_scale[as_size(choice.slot)];
      }
    });
    if (config_.experts->shared > 0) run_shared();
    sort();
    for (int e = 0; e < config_.experts->count; ++e) hidden(e);
    for (int e = 0; e < config_.experts->count; ++e) down(e);
    put_back();
  }

 private:
  void multiply_f32(const WeightMatrix& w, const float* x, float* y) {
    const MatmulJob job{&w, y, w.rows};
    context_.multiply({.rows = count_, .k = w.columns, .f32 = x, .exact = true}, {&job, 1});
  }

  void score_by_layers() {
    float* states = s_.states + first_ * router_;  // of the layer before, until they are replaced
    float* a = s_.router_a;
    float* b = s_.router_b;
    multiply_f32(w_.router_down, x_, a);
    for_rows(context_.pool, 0, count_, [&](std::int64_t t) {
      float *state = states + t * router_, *row = a + t * router_;
      for (std::int64_t i = 0; i < router_; ++i) {
        float value = row[i] + w_.down_bias[as_size(i)];
        if (!w_.carry.empty()) value += state[i] * w_.carry[as_size(i)];
        state[i] = value;
      }
      context_.rows.rms_norm(state, w_.norm.data(), router_, config_.norm_epsilon, row);
    });
    multiply_f32(w_.router_first, a, b);
    activate_router(b, w_.first_bias);
    multiply_f32(w_.router_second, b, a);
    activate_router(a, w_.second_bias);
    multiply_f32(w_.router_out, a, s_.scores);
  }

  void activate_router(float* rows, const std::vector<float>& bias) {
    for_rows(context_.pool, 0, count_, [&](std::int64_t t) {
      float* row = rows + t * router_;
      for (std::int64_t i = 0; i < router_; ++i) row[i] = gelu(row[i] + bias[as_size(i)]);
    });
  }

  void run_shared() {
    const std::int64_t n = config_.experts->shared, width = config_.width;
    const MatmulJob in[] = {{&w_.shared.up, s_.up, n}, {&w_.shared.gate, s_.gate, n}};
    context_.multiply({count_, width, x_}, std::span(in, products_in()));
    for_rows(context_.pool, 0, count_,
             [&](std::int64_t t) { activate(config_, context_.rows, gate_row(t * n), s_.up + t * n, n); });
    const MatmulJob out{&w_.shared.down, s_.shared, width};
    context_.multiply({count_, n, inside()}, {&out, 1});
    if (w_.shared_share.empty()) return;
    for_rows(context_.pool, 0, count_, [&](std::int64_t t) {
      float score = 0.0f;
      for (std::int64_t i = 0; i < width; ++i) score += w_.shared_share[as_size(i)] * x_[t * width + i];
      context_.rows.scale(s_.shared + t * width, 1.0f / (1.0f + std::exp(-score)), width);
    });
  }

  // Inputs of one expert side by side, in the order of their tokens.
  void sort() {
    begin_.assign(as_size(slots_ + 1), 0);
    for (const Choice& choice : choices_) ++begin_[as_size(choice.slot + 1)];
    for (std::size_t e = 1; e < begin_.size(); ++e) begin_[e] += begin_[e - 1];
    std::vector<std::int64_t> next = begin_;
    place_.resize(choices_.size());
    for (std::size_t i = 0; i < place_.size(); ++i) place_[i] = next[as_size(choices_[i].slot)]++;
    for_rows(context_.pool, 0, count_ * chosen_, [&](std::int64_t i) {
      std::memcpy(s_.sorted + place_[as_size(i)] * config_.width, x_ + i / chosen_ * config_.width,
                  as_size(config_.width) * sizeof(float));
    });
  }

  // Without a gate an expert is one product, and what it makes stands where `up` does.
  std::size_t products_in() const { return config_.gated ? 2 : 1; }
  float* gate_row(std::int64_t at) const { return config_.gated ? s_.gate + at : nullptr; }
  const float* inside() const { return config_.gated ? s_.gate : s_.up; }

  std::int64_t begin(int e) const { return begin_[as_size(e)]; }
  std::int64_t rows_of(int e) const { return begin_[as_size(e + 1)] - begin_[as_size(e)]; }

  void hidden(int e) {
    if (rows_of(e) == 0) return;
    const Expert& expert = w_.experts[as_size(e)];
    const std::int64_t n = expert_width(config_), from = begin(e);
    const MatmulJob jobs[] = {{&expert.up, s_.up + from * n, n}, {&expert.gate, s_.gate + from * n, n}};
    context_.multiply({rows_of(e), config_.width, s_.sorted + from * config_.width},
                      std::span(jobs, products_in()));
  }

  void down(int e) {
    if (rows_of(e) == 0) return;
    const std::int64_t n = expert_width(config_), from = begin(e), rows = rows_of(e);
    for_rows(context_.pool, from, from + rows, [&](std::int64_t i) { activate_expert(e, i); });
    const MatmulJob job{&w_.experts[as_size(e)].down, s_.outputs + from * config_.width, config_.width};
    context_.multiply({rows, n, inside() + from * n}, {&job, 1});
    if (w_.biases.down.empty()) return;
    for_rows(context_.pool, from, from + rows, [&](std::int64_t i) {
      context_.rows.add(s_.outputs + i * config_.width, w_.biases.down.data() + e * config_.width,
                        config_.width);
    });
  }

  // Row i of what expert e is given.
  void activate_expert(int e, std::int64_t i) {
    const std::int64_t n = expert_width(config_);
    float *gate = gate_row(i * n), *up = s_.up + i * n;
    if (!w_.biases.gate.empty()) {
      context_.rows.add(gate, w_.biases.gate.data() + e * n, n);
      context_.rows.add(up, w_.biases.up.data() + e * n, n);
    }
    if (!config_.experts->clamped) return activate(config_, context_.rows, gate, up, n);
    const auto [alpha, limit] = *config_.experts->clamped;
    for (std::int64_t k = 0; k < n; ++k) {
      const float g = std::min(gate[k], limit), u = std::clamp(up[k], -limit, limit);
      gate[k] = (u + 1.0f) * (g / (1.0f + std::exp(-alpha * g)));
    }
  }

  void put_back() {
    const bool nothing = config_.experts->skip == SkipSlot::zero;
    for_rows(context_.pool, 0, count_, [&](std::int64_t t) {
      const Choice* choices = choices_.data() + t * chosen_;
      float* out = x_ + t * config_.width;
      const auto output = [&](std::int64_t n) {
        return s_.outputs + place_[as_size(t * chosen_ + n)] * config_.width;
      };
      const bool skipped = choices[0].slot == config_.experts->count;
      if (!skipped) std::memcpy(out, output(0), as_size(config_.width) * sizeof(float));
      context_.rows.scale(out, skipped && nothing ? 0.0f : choices[0].share, config_.width);
      for (std::int64_t n = 1; n < chosen_; ++n) {
        context_.rows.scale(output(n), choices[n].share, config_.width);
        context_.rows.add(out, output(n), config_.width);
      }
      if (config_.experts->shared > 0) context_.rows.add(out, s_.shared + t * config_.width, config_.width);
    });
  }

  const ExpertsContext& context_;
  const ModelConfig& config_;
  const ExpertsWeights& w_;
  const ExpertsScratch& s_;
  std::int64_t first_, count_, router_, chosen_;
  int slots_;
  float* x_;
  std::vector<Choice> choices_;
  std::vector<std::int64_t> begin_, place_;  // of slots and of choices, in `sorted`
};

void load_router_layers(std::int64_t width, std::int64_t router, int layer, WeightSource& source,
                        ExpertsWeights& w) {
  w.router_down = source.matrix(Role::router_down, router, width);
  w.down_bias = source.values(Role::router_down_bias, {router});
  if (layer > 0) w.carry = source.values(Role::router_carry, {router});
  w.norm = source.values(Role::router_norm, {router});
  w.router_first = source.matrix(Role::router_first, router, router);
  w.first_bias = source.values(Role::router_first_bias, {router});
  w.router_second = source.matrix(Role::router_second, router, router);
  w.second_bias = source.values(Role::router_second_bias, {router});
}

void load_biases(const ModelConfig& config, WeightSource& source, ExpertsWeights& w) {
  if (!config.experts->biased) return;
  const std::int64_t count = config.experts->count, hidden = expert_width(config);
  w.biases.router = source.values(Role::router_out_bias, {count});
  w.biases.down = source.values(Role::expert_down_bias, {count, config.width});
  if (!source.has(Role::expert_gate_up_bias)) {
    w.biases.gate = source.values(Role::expert_gate_bias, {count, hidden});
    w.biases.up = source.values(Role::expert_up_bias, {count, hidden});
    return;
  }
  const auto both = source.values(Role::expert_gate_up_bias, {count, 2 * hidden});
  const bool turns = config.experts->gate_up_turns;
  for (std::int64_t e = 0; e < count; ++e)
    for (std::int64_t i = 0; i < hidden; ++i) {
      w.biases.gate.push_back(both[as_size(e * 2 * hidden + (turns ? 2 * i : i))]);
      w.biases.up.push_back(both[as_size(e * 2 * hidden + (turns ? 2 * i + 1 : hidden + i))]);
    }
}

void load_shared(const ModelConfig& config, WeightSource& source, ExpertsWeights& w) {
  const std::int64_t width = config.width, hidden = config.experts->shared;
  if (hidden == 0) return;
  if (source.has(Role::shared_gate_up)) {
    w.shared.gate = source.part_matrix(Role::shared_gate_up, {{2 * hidden, width}, 0, hidden, width});
    w.shared.up = source.part_matrix(Role::shared_gate_up, {{2 * hidden, width}, hidden, hidden, width});
  } else {
    if (config.gated) w.shared.gate = source.matrix(Role::shared_gate, hidden, width);
    w.shared.up = source.matrix(Role::shared_up, hidden, width);
  }
  w.shared.down = source.matrix(Role::shared_down, width, hidden);
  if (config.experts->shared_gated) w.shared_share = source.values(Role::shared_share, {1, width});
}

}  // namespace

ExpertsWeights load_experts(const ModelConfig& config, int layer, WeightSource& source) {
  const std::int64_t width = config.width, hidden = expert_width(config),
                     router = config.experts->router_width;
  ExpertsWeights w;
  if (router > 0) load_router_layers(width, router, layer, source, w);
  w.router_out = source.matrix(Role::router_out, config.experts->slots(), router > 0 ? router : width);
  if (router > 0 || config.experts->balanced)
    w.balance = source.values(Role::router_balance, {config.experts->slots()});
  if (config.experts->beside && source.has(Role::router_scale)) {
    w.router_scale = source.values(Role::router_scale, {width});
    for (float& value : w.router_scale) value /= std::sqrt(static_cast<float>(width));
  }
  if (config.experts->beside && source.has(Role::expert_scale))
    w.expert_scale = source.values(Role::expert_scale, {config.experts->count});
  const bool together = source.has(Role::expert_gate_up);
  for (int e = 0; e < config.experts->count; ++e) {
    const bool turns = config.experts->gate_up_turns;
    const ExpertRows one{e, 0, hidden}, first{e, 0, 2 * hidden, turns ? 2 : 1},
        second{e, turns ? 1 : hidden, 2 * hidden, turns ? 2 : 1};
    Expert expert;
    if (config.gated)
      expert.gate = together ? source.expert_matrix(Role::expert_gate_up, hidden, width, first)
                             : source.expert_matrix(Role::expert_gate, hidden, width, one);
    expert.up = together ? source.expert_matrix(Role::expert_gate_up, hidden, width, second)
                         : source.expert_matrix(Role::expert_up, hidden, width, one);
    expert.down = source.expert_matrix(Role::expert_down, width, hidden, {e, 0, width});
    w.experts.push_back(std::move(expert));
  }
  load_biases(config, source, w);
  load_shared(config, source, w);
  return w;
}

std::int64_t ExpertsScratch::floats_per_token(const ModelConfig& config) {
  return 3 * config.experts->router_width + config.experts->slots() +
         2 * config.experts->chosen * config.width + (config.experts->shared > 0 ? config.width : 0);
}

ExpertsScratch ExpertsScratch::in(float* memory, const ModelConfig& config, std::int64_t n) {
  ExpertsScratch s{};
  const auto take = [&](std::int64_t floats) {
    float* start = memory;
    memory += floats * n;
    return start;
  };
  s.states = take(config.experts->router_width);
  s.router_a = take(config.experts->router_width);
  s.router_b = take(config.experts->router_width);
  s.scores = take(config.experts->slots());
  s.sorted = take(config.experts->chosen * config.width);
  s.outputs = take(config.experts->chosen * config.width);
  s.shared = take(config.experts->shared > 0 ? config.width : 0);
  return s;
}

void run_experts(const ExpertsContext& context, const ExpertsScratch& scratch, std::int64_t first,
                 std::int64_t last, float* x) {
  Routing(context, scratch, first, last, x).run();
}

}  // namespace kvtide
