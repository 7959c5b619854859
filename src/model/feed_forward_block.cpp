#include "model/feed_forward_block.h"

#include "model/activate.h"
#include "model/experts.h"
#include "model/for_rows.h"
#include "model/pass_timer.h"

namespace kvtide {

void FeedForwardBlock::run(int layer, std::span<ActivePart> /*parts*/, std::int64_t skip,
                           std::int64_t count) {
  if (skip < count) add(layer, context_.weights.layer(layer), skip, count);
}

void FeedForwardBlock::add(int layer, const LayerWeights& w, std::int64_t skip, std::int64_t count) {
  steps_.norm(ws_.x_, w.feed_forward_norm, w.feed_forward_norm_bias, skip, count, ws_.normed_);
  feed_forward(layer, w, skip, count);
  steps_.add_residual(w.down_bias, w.feed_forward_post_norm, w.feed_forward_scale, skip, count);
}

void ExpertsBlock::add(int /*layer*/, const LayerWeights& w, std::int64_t skip, std::int64_t count) {
  steps_.norm(ws_.x_, w.feed_forward_norm, w.feed_forward_norm_bias, skip, count, ws_.normed_);
  experts(w, nullptr, skip, count);
  steps_.add_residual({}, {}, w.feed_forward_scale, skip, count);
}

void ExpertsBesideBlock::add(int layer, const LayerWeights& w, std::int64_t skip, std::int64_t count) {
  const std::int64_t width = config_.width;
  steps_.norm(ws_.x_, w.feed_forward_norm, {}, skip, count, ws_.normed_);
  feed_forward(layer, w, skip, count);
  steps_.norm(ws_.normed_, w.beside_post_norm, {}, skip, count, ws_.beside_.output);
  steps_.norm(ws_.x_, w.experts->router_scale, {}, skip, count, ws_.beside_.routed);
  steps_.norm(ws_.x_, w.experts_norm, {}, skip, count, ws_.normed_);
  experts(w, ws_.beside_.routed + skip * width, skip, count);
  steps_.norm(ws_.normed_, w.experts_post_norm, {}, skip, count, ws_.normed_);
  {
    const PassTimer timer(context_.times, &PassTimes::rows);
    for_rows(context_.pool, skip, count, [&](std::int64_t t) {
      context_.kernels.elementwise.add(ws_.normed_ + t * width, ws_.beside_.output + t * width, width);
    });
  }
  steps_.add_residual({}, w.feed_forward_post_norm, w.feed_forward_scale, skip, count);
}

void FeedForwardBlock::feed_forward(int layer, const LayerWeights& w, std::int64_t skip, std::int64_t count) {
  const std::int64_t hidden = hidden_of(config_, layer);
  const MatmulJob jobs[] = {{&w.up, ws_.up_ + skip * hidden, hidden},
                            {&w.gate, ws_.gate_ + skip * hidden, hidden}};
  steps_.multiply({count - skip, config_.width, ws_.normed_ + skip * config_.width},
                  std::span(jobs, config_.gated ? 2 : 1));
  activate(w, hidden, skip, count);
  steps_.project(w.down, config_.gated ? ws_.gate_ : ws_.up_, hidden, skip, count);
}

void FeedForwardBlock::experts(const LayerWeights& w, const float* routed, std::int64_t skip,
                               std::int64_t count) {
  const auto products = [this](const Activations& rows, std::span<const MatmulJob> jobs) {
    steps_.multiply(rows, jobs);
  };
  run_experts({config_, *w.experts, context_.kernels.elementwise, context_.pool, products, routed},
              ws_.experts_, skip, count, ws_.normed_ + skip * config_.width);
}

void FeedForwardBlock::activate(const LayerWeights& w, std::int64_t hidden, std::int64_t skip,
                                std::int64_t count) {
  const PassTimer timer(context_.times, &PassTimes::rows);
  const ElementwiseRow& rows = context_.kernels.elementwise;
  for_rows(context_.pool, skip, count, [&](std::int64_t t) {
    float* up = ws_.up_ + t * hidden;
    if (!w.up_bias.empty()) rows.add(up, w.up_bias.data(), hidden);
    kvtide::activate(config_, rows, config_.gated ? ws_.gate_ + t * hidden : nullptr, up, hidden);
  });
}

}  // namespace kvtide
