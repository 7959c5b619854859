#include "model/row_steps.h"

#include "base/text.h"
#include "kvtide/error.h"
#include "model/experts.h"
#include "model/for_rows.h"
#include "model/pass_timer.h"
#include "model/residual.h"

namespace kvtide {

void RowSteps::embed(std::span<const TokenId> tokens, Pos first) {
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
    float* x = ws_.x_ + t * config_.width;
    decode_weight_row(context_.kernels.matmul, weights_.embedding(), tokens[static_cast<std::size_t>(t)], x);
    if (config_.embedding_scale != 1.0f) rows_.scale(x, config_.embedding_scale, config_.width);
    if (config_.learned_positions) {
      // The normed rows are free until the first layer.
      float* position = ws_.normed_ + t * config_.width;
      decode_weight_row(context_.kernels.matmul, weights_.positions(), first + t, position);
      rows_.add(x, position, config_.width);
    }
    const auto &bias = weights_.input_bias(), &scale = weights_.input_scale();
    for (std::size_t i = 0; i < scale.size(); ++i) x[i] = (x[i] + bias[i]) * scale[i];
  });
}

void RowSteps::project(const WeightMatrix& w, const float* input, std::int64_t k, std::int64_t skip,
                       std::int64_t count) {
  const Activations x = activations(input + skip * k, count - skip, k);
  const MatmulJob job{&w, ws_.normed_ + skip * config_.width, config_.width};
  multiply(x, {&job, 1});
}

void RowSteps::multiply(const Activations& x, std::span<const MatmulJob> jobs) {
  const PassTimer timer(context_.times, &PassTimes::matmul);
  matmul(context_.pool, context_.kernels.matmul, x, jobs);
}

void RowSteps::add_residual(const std::vector<float>& bias, const std::vector<float>& post_norm,
                            const ResidualScale& scale, std::int64_t skip, std::int64_t count) {
  const PassTimer timer(context_.times, &PassTimes::rows);
  for_rows(context_.pool, skip, count, [&](std::int64_t t) {
    float* y = ws_.normed_ + t * config_.width;
    if (!bias.empty()) rows_.add(y, bias.data(), config_.width);
    if (!post_norm.empty()) rows_.rms_norm(y, post_norm.data(), config_.width, config_.norm_epsilon, y);
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
    if (config_.norm == NormKind::rms)
      rows_.rms_norm(x + t * n, weight.data(), n, config_.norm_epsilon, y + t * n);
    else
      rows_.layer_norm(x + t * n, weight.data(), bias.data(), n, config_.norm_epsilon, y + t * n);
  });
}

Activations RowSteps::activations(const float* x, std::int64_t rows, std::int64_t k) {
  Activations a{rows, k, x, {}};
  if (context_.exact || k % 32 != 0) return a;
  const PassTimer timer(context_.times, &PassTimes::quantise);
  for_rows(context_.pool, 0, rows, [&](std::int64_t row) {
    rows_.quantize(x + row * k, k, ws_.quants_ + row * k, ws_.steps_ + row * (k / 32),
                   ws_.step_sums_ + row * (k / 32), ws_.sums16_ + row * (k / 16));
  });
  a.quant = {rows, k, ws_.quants_, ws_.steps_, ws_.step_sums_, ws_.sums16_};
  return a;
}

void RowSteps::feed_forward(int layer, std::int64_t skip, std::int64_t count) {
  const LayerWeights& w = weights_.layer(layer);
  const std::int64_t hidden = config_.hidden;
  norm(ws_.x_, w.feed_forward_norm, w.feed_forward_norm_bias, skip, count, ws_.normed_);
  if (w.experts) {
    run_experts(w, skip, count);
    add_residual({}, {}, w.feed_forward_scale, skip, count);
    return;
  }
  const Activations x = activations(ws_.normed_ + skip * config_.width, count - skip, config_.width);
  const MatmulJob jobs[] = {{&w.up, ws_.up_ + skip * hidden, hidden},
                            {&w.gate, ws_.gate_ + skip * hidden, hidden}};
  multiply(x, std::span(jobs, config_.gated ? 2 : 1));
  activate(w, skip, count);
  project(w.down, config_.gated ? ws_.gate_ : ws_.up_, hidden, skip, count);
  add_residual(w.down_bias, w.feed_forward_post_norm, w.feed_forward_scale, skip, count);
}

void RowSteps::run_experts(const LayerWeights& w, std::int64_t skip, std::int64_t count) {
  const auto make = [this](const float* rows, std::int64_t n, std::int64_t k) {
    return activations(rows, n, k);
  };
  const auto products = [this](const Activations& rows, std::span<const MatmulJob> jobs) {
    multiply(rows, jobs);
  };
  kvtide::run_experts({config_, *w.experts, context_.kernels.elementwise, context_.pool, make, products},
                      ws_.experts_, skip, count, ws_.normed_ + skip * config_.width);
}

void RowSteps::activate(const LayerWeights& w, std::int64_t skip, std::int64_t count) {
  const PassTimer timer(context_.times, &PassTimes::rows);
  const std::int64_t hidden = config_.hidden;
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
