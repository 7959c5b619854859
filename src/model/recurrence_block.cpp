#include "model/recurrence_block.h"

#include "model/pass_timer.h"

namespace kvtide {

void RecurrenceBlock::run(int layer, std::span<ActivePart> parts, std::int64_t skip, std::int64_t count) {
  const LayerWeights& w = context_.weights.layer(layer);
  steps_.norm(ws_.x_, w.attention_norm, w.attention_norm_bias, 0, count, ws_.normed_);
  const Output out = mix(layer, w, parts, count);
  if (skip == count) return;
  steps_.project(out.matrix, out.rows, out.matrix.columns, skip, count);
  steps_.add_residual(out.bias, w.attention_post_norm, w.attention_scale, skip, count);
}

RecurrenceBlock::Output ShortConvBlock::mix(int layer, const LayerWeights& w, std::span<ActivePart> parts,
                                            std::int64_t count) {
  const std::int64_t width = config_.width;
  const MatmulJob in{&w.conv->in, ws_.conv_.thirds, 3 * width};
  steps_.multiply({count, width, ws_.normed_}, {&in, 1});
  const PassTimer timer(context_.times, &PassTimes::rows);
  for (ActivePart& part : parts)
    carrying(part, [&] {
      run_short_conv(
          config_, *w.conv, context_.pool, part.step, layer,
          {ws_.conv_.thirds + part.begin * 3 * width, ws_.conv_.u, ws_.conv_.y + part.begin * width});
    });
  return {w.conv->out, ws_.conv_.y, w.conv->out_bias};
}

RecurrenceBlock::Output DeltaNetBlock::mix(int layer, const LayerWeights& w, std::span<ActivePart> parts,
                                           std::int64_t count) {
  const DeltaNetConfig& net = *config_.delta;
  const DeltaNetScratch& s = ws_.delta_;
  const Activations x{count, config_.width, ws_.normed_};
  const MatmulJob wide[] = {{&w.delta->qkv, s.qkv, net.channels()}, {&w.delta->z, s.z, net.value_width()}};
  steps_.multiply(x, wide);
  // How fast a head forgets is not to hang on the rounding of activations.
  const MatmulJob narrow[] = {{&w.delta->alpha, s.alpha, net.value_heads},
                              {&w.delta->beta, s.beta, net.value_heads}};
  steps_.multiply({.rows = count, .k = config_.width, .f32 = ws_.normed_, .exact = true}, narrow);
  const PassTimer timer(context_.times, &PassTimes::rows);
  for (ActivePart& part : parts)
    carrying(part, [&] {
      run_delta_net(config_, *w.delta, context_.kernels.elementwise, context_.pool, part.step, layer,
                    s.from(part.begin, net));
    });
  return {w.delta->out, s.z, w.output_bias};
}

RecurrenceBlock::Output StateSpaceBlock::mix(int layer, const LayerWeights& w, std::span<ActivePart> parts,
                                             std::int64_t count) {
  const StateSpaceConfig& space = *config_.state_space;
  const StateSpaceScratch& s = ws_.space_;
  const MatmulJob wide[] = {{&w.space->z, s.z, space.inner()},
                            {&w.space->mixed, s.projected, space.channels()}};
  steps_.multiply({count, config_.width, ws_.normed_}, wide);
  const MatmulJob time{&w.space->time, s.time, space.heads};  // exact, as those of delta nets
  steps_.multiply({.rows = count, .k = config_.width, .f32 = ws_.normed_, .exact = true}, {&time, 1});
  const PassTimer timer(context_.times, &PassTimes::rows);
  for (ActivePart& part : parts)
    carrying(part, [&] {
      run_state_space(config_, *w.space, context_.kernels.elementwise, context_.pool, part.step, layer,
                      s.from(part.begin, space));
    });
  return {w.space->out, s.z, w.space->out_bias};
}

}  // namespace kvtide
