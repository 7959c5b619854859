#include "model/row_steps.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
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

}  // namespace kvtide
