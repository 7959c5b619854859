#include "model/row_steps.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
#include "model/experts.h"
#include "model/for_rows.h"
#include "model/residual.h"

namespace kvtide {

void RowSteps::embed(std::span<const TokenId> tokens, Pos first, std::int64_t begin) {
  for (const TokenId token : tokens)
    if (token < 0 || token >= config_.vocab)
      throw Error(ErrorCode::invalid_argument,
                  cat("token id ", token, " is outside the vocabulary of ", config_.vocab));
  const Pos end = first + static_cast<Pos>(tokens.size());
  if (config_.learned_positions && end > config_.context_length)
    throw Error(ErrorCode::context_full,
                cat("position ", end - 1, " is beyond the ", config_.context_length,
                    " positions that this model has learned; it has nothing to say of later ones"));
  for_rows(context_.pool, 0, static_cast<std::int64_t>(tokens.size()), [&](std::int64_t t) {
    float* x = ws_.x_ + (begin + t) * config_.width;
    decode_weight_row(context_.kernels.matmul, weights_.embedding(), tokens[static_cast<std::size_t>(t)], x);
    if (config_.embedding_scale != 1.0f) rows_.scale(x, config_.embedding_scale, config_.width);
    if (config_.learned_positions) {
      // The normed rows are free until the first layer.
      float* position = ws_.normed_ + (begin + t) * config_.width;
      decode_weight_row(context_.kernels.matmul, weights_.positions(), first + t, position);
      rows_.add(x, position, config_.width);
    }
    const auto &bias = weights_.input_bias(), &scale = weights_.input_scale();
    for (std::size_t i = 0; i < scale.size(); ++i) x[i] = (x[i] + bias[i]) * scale[i];
  });
}

void RowSteps::project(const WeightMatrix& w, const float* input, std::int64_t k, std::int64_t skip,
                       std::int64_t count) {
  const MatmulJob job{&w, ws_.normed_ + skip * config_.width, config_.width};
  multiply({count - skip, k, input + skip * k}, {&job, 1});
}

void RowSteps::multiply(Activations x, std::span<const MatmulJob> jobs, double PassTimes::*part) {
  const auto takes = [](const MatmulJob& job) { return takes_quants(*job.weights); };
  if (!context_.exact && !x.exact && std::any_of(jobs.begin(), jobs.end(), takes)) {
    const PassTimer timer(context_.times, &PassTimes::quantise);
    x.quants = {x.rows, x.k, ws_.quants_};
    for_rows(context_.pool, 0, x.rows,
             [&](std::int64_t row) { rows_.quantize(x.f32 + row * x.k, x.k, x.quants.row(row)); });
  }
  const PassTimer timer(context_.times, part);
  matmul(context_.pool, context_.kernels.matmul, x, jobs);
}

void RowSteps::add_residual(const std::vector<float>& bias, const std::vector<float>& post_norm,
                            const ResidualScale& scale, std::int64_t skip, std::int64_t count) {
  const PassTimer timer(context_.times, &PassTimes::rows);
  for_rows(context_.pool, skip, count, [&](std::int64_t t) {
    float* y = ws_.normed_ + t * config_.width;
    if (!bias.empty()) rows_.add(y, bias.data(), config_.width);
    if (!post_norm.empty()) rows_.rms_norm(y, post_norm.data(), config_.width, config_.norm_epsilon, y);
    if (config_.residual_scale != 1.0f) rows_.scale(y, config_.residual_scale, config_.width);
    if (scale.empty())
      rows_.add(ws_.x_ + t * config_.width, y, config_.width);
    else
      merge_scaled(scale, y, ws_.x_ + t * config_.width);
  });
}

void RowSteps::norm(const float* x, const std::vector<float>& weight, const std::vector<float>& bias,
                    std::int64_t first, std::int64_t last, float* y) {
  const PassTimer timer(context_.times, &PassTimes::rows);
  const std::int64_t n = config_.width;
  for_rows(context_.pool, first, last, [&](std::int64_t t) {
    if (weight.empty())
      std::copy_n(x + t * n, n, y + t * n);
    else if (config_.norm == NormKind::rms)
      rows_.rms_norm(x + t * n, weight.data(), n, config_.norm_epsilon, y + t * n);
    else
      rows_.layer_norm(x + t * n, weight.data(), bias.data(), n, config_.norm_epsilon, y + t * n);
  });
}

void RowSteps::feed_forward(int layer, std::int64_t skip, std::int64_t count) {
  const LayerWeights& w = weights_.layer(layer);
  if (w.experts && config_.experts->beside) return experts_beside(layer, w, skip, count);
  norm(ws_.x_, w.feed_forward_norm, w.feed_forward_norm_bias, skip, count, ws_.normed_);
  if (w.experts) {
    run_experts(w, nullptr, skip, count);
    add_residual({}, {}, w.feed_forward_scale, skip, count);
    return;
  }
  single_feed_forward(layer, w, skip, count);
  add_residual(w.down_bias, w.feed_forward_post_norm, w.feed_forward_scale, skip, count);
}

// normed = the feed-forward of normed.
void RowSteps::single_feed_forward(int layer, const LayerWeights& w, std::int64_t skip, std::int64_t count) {
  const std::int64_t hidden = hidden_of(config_, layer);
  const MatmulJob jobs[] = {{&w.up, ws_.up_ + skip * hidden, hidden},
                            {&w.gate, ws_.gate_ + skip * hidden, hidden}};
  multiply({count - skip, config_.width, ws_.normed_ + skip * config_.width},
           std::span(jobs, config_.gated ? 2 : 1));
  activate(w, hidden, skip, count);
  project(w.down, config_.gated ? ws_.gate_ : ws_.up_, hidden, skip, count);
}

// Both read x, the router under a norm of its own; x += post_norm(norm(feed-forward) + norm(experts)).
void RowSteps::experts_beside(int layer, const LayerWeights& w, std::int64_t skip, std::int64_t count) {
  const std::int64_t width = config_.width;
  norm(ws_.x_, w.feed_forward_norm, {}, skip, count, ws_.normed_);
  single_feed_forward(layer, w, skip, count);
  norm(ws_.normed_, w.beside_post_norm, {}, skip, count, ws_.beside_.output);
  norm(ws_.x_, w.experts->router_scale, {}, skip, count, ws_.beside_.routed);
  norm(ws_.x_, w.experts_norm, {}, skip, count, ws_.normed_);
  run_experts(w, ws_.beside_.routed + skip * width, skip, count);
  norm(ws_.normed_, w.experts_post_norm, {}, skip, count, ws_.normed_);
  {
    const PassTimer timer(context_.times, &PassTimes::rows);
    for_rows(context_.pool, skip, count, [&](std::int64_t t) {
      rows_.add(ws_.normed_ + t * width, ws_.beside_.output + t * width, width);
    });
  }
  add_residual({}, w.feed_forward_post_norm, w.feed_forward_scale, skip, count);
}

// What the token gives to the layer, and the layer's scale (layer_inputs.h).
void RowSteps::end_layer(int layer, std::int64_t skip, std::int64_t count) {
  const LayerWeights& w = weights_.layer(layer);
  const std::int64_t width = config_.width, each = config_.layer_inputs;
  if (w.input) {
    float* const gates = ws_.layer_inputs_.gates;
    const MatmulJob job{&w.input->gate, gates + skip * each, each};
    multiply({count - skip, width, ws_.x_ + skip * width}, {&job, 1});
    {
      const PassTimer timer(context_.times, &PassTimes::rows);
      const auto layers = static_cast<std::int64_t>(config_.layers.size());
      for_rows(context_.pool, skip, count, [&](std::int64_t t) {
        rows_.gelu_mul(gates + t * each, ws_.layer_inputs_.values + (t * layers + layer) * each, each);
      });
    }
    project(w.input->out, gates, each, skip, count);
    add_residual({}, w.input->post_norm, {}, skip, count);
  }
  if (w.scale == 1.0f) return;
  const PassTimer timer(context_.times, &PassTimes::rows);
  for_rows(context_.pool, skip, count,
           [&](std::int64_t t) { rows_.scale(ws_.x_ + t * width, w.scale, width); });
}

void RowSteps::run_experts(const LayerWeights& w, const float* routed, std::int64_t skip,
                           std::int64_t count) {
  const auto products = [this](const Activations& rows, std::span<const MatmulJob> jobs) {
    multiply(rows, jobs);
  };
  kvtide::run_experts({config_, *w.experts, context_.kernels.elementwise, context_.pool, products, routed},
                      ws_.experts_, skip, count, ws_.normed_ + skip * config_.width);
}

void RowSteps::activate(const LayerWeights& w, std::int64_t hidden, std::int64_t skip, std::int64_t count) {
  const PassTimer timer(context_.times, &PassTimes::rows);
  const auto gate = config_.activation == Activation::silu ? rows_.silu_mul : rows_.gelu_mul;
  for_rows(context_.pool, skip, count, [&](std::int64_t t) {
    float* up = ws_.up_ + t * hidden;
    if (!w.up_bias.empty()) rows_.add(up, w.up_bias.data(), hidden);
    if (config_.gated)
      gate(ws_.gate_ + t * hidden, up, hidden);
    else
      rows_.gelu(up, hidden);
  });
}

}  // namespace kvtide
