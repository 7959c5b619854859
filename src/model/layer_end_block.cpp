#include "model/layer_end_block.h"

#include "model/for_rows.h"
#include "model/pass_timer.h"

namespace kvtide {

void LayerEndBlock::run(int layer, std::span<ActivePart> /*parts*/, std::int64_t skip, std::int64_t count) {
  if (skip == count) return;
  const LayerWeights& w = context_.weights.layer(layer);
  if (w.input) add_inputs(layer, *w.input, skip, count);
  if (w.scale == 1.0f) return;
  const PassTimer timer(context_.times, &PassTimes::rows);
  for_rows(context_.pool, skip, count, [&](std::int64_t t) {
    context_.kernels.elementwise.scale(ws_.x_ + t * config_.width, w.scale, config_.width);
  });
}

void LayerEndBlock::add_inputs(int layer, const LayerInputWeights& w, std::int64_t skip, std::int64_t count) {
  const std::int64_t width = config_.width, each = config_.layer_inputs;
  float* const gates = ws_.layer_inputs_.gates;
  const MatmulJob job{&w.gate, gates + skip * each, each};
  steps_.multiply({count - skip, width, ws_.x_ + skip * width}, {&job, 1});
  {
    const PassTimer timer(context_.times, &PassTimes::rows);
    const auto layers = static_cast<std::int64_t>(config_.layers.size());
    for_rows(context_.pool, skip, count, [&](std::int64_t t) {
      context_.kernels.elementwise.gelu_mul(gates + t * each,
                                            ws_.layer_inputs_.values + (t * layers + layer) * each, each);
    });
  }
  steps_.project(w.out, gates, each, skip, count);
  steps_.add_residual({}, w.post_norm, {}, skip, count);
}

}  // namespace kvtide
