#include "model/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/as_size.h"
#include "model/for_rows.h"

namespace kvtide {
namespace {

// 0.5 x (1 + erf(x / sqrt(2)))
float gelu(float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f)); }

struct Choice {
  int slot;
  float probability;
};

// Softmax of n scores in place, and the choice among them; of equals the first.
Choice choose(float* scores, const std::vector<float>& balance) {
  const std::size_t n = balance.size();
  const float highest = *std::max_element(scores, scores + n);
  float sum = 0.0f;
  for (std::size_t i = 0; i < n; ++i) sum += scores[i] = std::exp(scores[i] - highest);
  std::size_t best = 0;
  for (std::size_t i = 0; i < n; ++i) {
    scores[i] /= sum;
    if (scores[i] + balance[i] > scores[best] + balance[best]) best = i;
  }
  return {static_cast<int>(best), scores[best]};
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
        slots_(config_.experts->count + 1),
        x_(x),
        choices_(as_size(count_)) {}

  void run() {
    route();
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

  void route() {
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
    activate(b, w_.first_bias);
    multiply_f32(w_.router_second, b, a);
    activate(a, w_.second_bias);
    multiply_f32(w_.router_out, a, s_.scores);
    for_rows(context_.pool, 0, count_,
             [&](std::int64_t t) { choices_[as_size(t)] = choose(s_.scores + t * slots_, w_.balance); });
  }

  void activate(float* rows, const std::vector<float>& bias) {
    for_rows(context_.pool, 0, count_, [&](std::int64_t t) {
      float* row = rows + t * router_;
      for (std::int64_t i = 0; i < router_; ++i) row[i] = gelu(row[i] + bias[as_size(i)]);
    });
  }

  // Inputs of one expert side by side, in the order of their tokens.
  void sort() {
    begin_.assign(as_size(slots_ + 1), 0);
    for (const Choice& choice : choices_) ++begin_[as_size(choice.slot + 1)];
    for (std::size_t e = 1; e < begin_.size(); ++e) begin_[e] += begin_[e - 1];
    std::vector<std::int64_t> next = begin_;
    place_.resize(as_size(count_));
    for (std::size_t t = 0; t < place_.size(); ++t) place_[t] = next[as_size(choices_[t].slot)]++;
    for_rows(context_.pool, 0, count_, [&](std::int64_t t) {
      std::memcpy(s_.sorted + place_[as_size(t)] * config_.width, x_ + t * config_.width,
                  as_size(config_.width) * sizeof(float));
    });
  }

  std::int64_t begin(int e) const { return begin_[as_size(e)]; }
  std::int64_t rows_of(int e) const { return begin_[as_size(e + 1)] - begin_[as_size(e)]; }

  void hidden(int e) {
    if (rows_of(e) == 0) return;
    const Expert& expert = w_.experts[as_size(e)];
    const std::int64_t n = config_.hidden, from = begin(e);
    const MatmulJob jobs[] = {{&expert.gate, s_.gate + from * n, n}, {&expert.up, s_.up + from * n, n}};
    context_.multiply({rows_of(e), config_.width, s_.sorted + from * config_.width}, jobs);
  }

  void down(int e) {
    if (rows_of(e) == 0) return;
    const std::int64_t n = config_.hidden, from = begin(e), rows = rows_of(e);
    for_rows(context_.pool, from, from + rows,
             [&](std::int64_t i) { context_.rows.silu_mul(s_.gate + i * n, s_.up + i * n, n); });
    const MatmulJob job{&w_.experts[as_size(e)].down, s_.outputs + from * config_.width, config_.width};
    context_.multiply({rows, n, s_.gate + from * n}, {&job, 1});
  }

  void put_back() {
    const bool nothing = config_.experts->skip == SkipSlot::zero;
    for_rows(context_.pool, 0, count_, [&](std::int64_t t) {
      const Choice choice = choices_[as_size(t)];
      float* out = x_ + t * config_.width;
      const bool skipped = choice.slot == config_.experts->count;
      if (!skipped)
        std::memcpy(out, s_.outputs + place_[as_size(t)] * config_.width,
                    as_size(config_.width) * sizeof(float));
      context_.rows.scale(out, skipped && nothing ? 0.0f : choice.probability, config_.width);
    });
  }

  const ExpertsContext& context_;
  const ModelConfig& config_;
  const ExpertsWeights& w_;
  const ExpertsScratch& s_;
  std::int64_t first_, count_, router_;
  int slots_;
  float* x_;
  std::vector<Choice> choices_;
  std::vector<std::int64_t> begin_, place_;  // of slots and of tokens, in `sorted`
};

}  // namespace

ExpertsWeights load_experts(const ModelConfig& config, int layer, WeightSource& source) {
  const std::int64_t width = config.width, hidden = config.hidden, router = config.experts->router_width;
  const int count = config.experts->count;
  ExpertsWeights w;
  w.router_down = source.matrix(Role::router_down, router, width);
  w.down_bias = source.values(Role::router_down_bias, {router});
  if (layer > 0) w.carry = source.values(Role::router_carry, {router});
  w.norm = source.values(Role::router_norm, {router});
  w.router_first = source.matrix(Role::router_first, router, router);
  w.first_bias = source.values(Role::router_first_bias, {router});
  w.router_second = source.matrix(Role::router_second, router, router);
  w.second_bias = source.values(Role::router_second_bias, {router});
  w.router_out = source.matrix(Role::router_out, count + 1, router);
  w.balance = source.values(Role::router_balance, {count + 1});
  for (int e = 0; e < count; ++e)
    w.experts.push_back({source.expert_matrix(Role::expert_gate_up, hidden, width, {e, 0, 2 * hidden}),
                         source.expert_matrix(Role::expert_gate_up, hidden, width, {e, hidden, 2 * hidden}),
                         source.expert_matrix(Role::expert_down, width, hidden, {e, 0, width})});
  return w;
}

std::int64_t ExpertsScratch::floats_per_token(const ModelConfig& config) {
  return 3 * config.experts->router_width + config.experts->count + 1 + 2 * config.width;
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
  s.scores = take(config.experts->count + 1);
  s.sorted = take(config.width);
  s.outputs = take(config.width);
  return s;
}

void run_experts(const ExpertsContext& context, const ExpertsScratch& scratch, std::int64_t first,
                 std::int64_t last, float* x) {
  Routing(context, scratch, first, last, x).run();
}

}  // namespace kvtide
