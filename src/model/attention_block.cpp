#include "model/attention_block.h"

#include <algorithm>
#include <cmath>

#include "kernels/attend.h"
#include "model/for_rows.h"
#include "model/latent.h"
#include "model/pass_timer.h"
#include "state/shadow.h"

namespace kvtide {

AttentionBlock::AttentionBlock(const DecoderContext& context, Workspace& workspace, RowSteps& steps)
    : config_(context.config),
      context_(context),
      ws_(workspace),
      steps_(steps),
      kept_(config_.layers.size(), -1) {
  int next = 0;
  for (const int layer : attention_layers(config_)) kept_[static_cast<std::size_t>(layer)] = next++;
  for (std::size_t i = 0; i < kept_.size(); ++i)
    if (const int source = config_.layers[i].rows_of; source >= 0) kept_[i] = kept(source);
}

void AttentionBlock::run(int layer, std::span<ActivePart> parts, std::int64_t skip, std::int64_t count) {
  const LayerWeights& w = context_.weights.layer(layer);
  if (w.latent) {
    steps_.norm(ws_.x_, w.attention_norm, w.attention_norm_bias, 0, count, ws_.normed_);
    project_latents(context_, steps_, *w.latent, ws_.normed_, count, ws_.latent_, {ws_.q_, ws_.k_, ws_.v_});
  } else {
    project_heads(layer, w, parts, owns_rows(layer) ? 0 : skip, count);
  }
  for (ActivePart& part : parts) attend_part(part, layer, w, std::max<std::int64_t>(0, skip - part.begin));
  if (skip == count) return;
  if (config_.gated_attention) gate(skip, count);
  if (w.latent) {
    expand_latents(context_, steps_, *w.latent, ws_.mixed_, skip, count, ws_.latent_);
    steps_.project(w.output, ws_.latent_.values, config_.heads * config_.latent->value, skip, count);
  } else {
    steps_.project(w.output, ws_.mixed_, heads_of(config_, layer).q_width(), skip, count);
  }
  steps_.add_residual(w.output_bias, w.attention_post_norm, w.attention_scale, skip, count);
}

// mixed = attention of the part's rows; the first `skip` may be left out.
void AttentionBlock::attend_part(ActivePart& part, int layer, const LayerWeights& w, std::int64_t skip) {
  KvState::Step& step = part.step;
  const HeadsConfig heads = heads_of(config_, layer);
  const std::int64_t q_width = heads.q_width(), count = part.count;
  // References, and tokens that a shadow looks at, may be among rows that nobody else wants. What a memory learns of a
  // layer's rows, the layer that keeps them teaches it.
  const bool owns = owns_rows(layer);
  Shadow* const shadow = owns ? part.asked.shadow : nullptr;
  const bool shadowed = shadow != nullptr && shadow->looks_at(kept(layer), step.first(), count);
  Repetition* const repetition =
      owns && step.state().past() != nullptr && step.state().past()->holds(kept(layer))
          ? part.asked.repetition
          : nullptr;
  const bool observed = (owns && step.observes(kept(layer))) || shadowed || repetition != nullptr;
  const std::int64_t attended = observed ? 0 : std::min(skip, count);
  const auto spans = step.spans(kept(layer));
  const std::size_t rope = rope_of(layer);
  QueryViews queries(part.angles, {rope, ws_.ropes_[rope], step.first(), step.tokens()}, spans,
                     {ws_.q_ + part.begin * q_width, heads.heads, heads.head_dim});
  turn_queries(part, layer, w, owns ? 0 : attended, queries);
  if (owns) write_rows(part, layer, w);

  AttendInput input{shape_of(step, layer), queries.views(), queries.rows(), spans};
  if (owns && !part.samples.empty() && step.is_measured(kept(layer)))
    part.samples.add(context_.pool, context_.kernels.attend, input, step.near());
  if (attended == count) return;

  queries.skip(attended);
  input.shape.first += attended;
  input.shape.tokens -= attended;
  float* const mixed = ws_.mixed_ + part.begin * q_width;
  const bool massed = observed || !w.sinks.empty();
  std::vector<float> log_mass(massed ? static_cast<std::size_t>((count - attended) * config_.heads) : 0);
  {
    const PassTimer timer(context_.times, &PassTimes::attention);
    attend(context_.pool, context_.kernels.attend, input, mixed + attended * q_width,
           massed ? log_mass.data() : nullptr);
  }
  for (std::int64_t t = 0; owns && t < count; ++t)
    if (step.observes(kept(layer), t))
      step.observe_log_mass(kept(layer), t, log_mass.data() + t * config_.heads);
  if (shadowed)
    shadow->compare(context_.pool, context_.kernels, step.state(), kept(layer), input, mixed,
                    log_mass.data());
  if (repetition != nullptr)
    repetition->look(context_.pool, context_.kernels, kept(layer), input, log_mass.data());
  step.leave(kept(layer));
  if (!w.sinks.empty()) share_with_sinks(w, log_mass, mixed + attended * q_width, count - attended);
}

// A learned score in the denominator of every head takes its share of the attention, and gives no value for it.
void AttentionBlock::share_with_sinks(const LayerWeights& w, std::span<const float> log_mass, float* mixed,
                                      std::int64_t count) {
  const PassTimer timer(context_.times, &PassTimes::rows);
  for_rows(context_.pool, 0, count, [&](std::int64_t t) {
    for (int h = 0; h < config_.heads; ++h) {
      const std::int64_t at = t * config_.heads + h;
      const float over = w.sinks[static_cast<std::size_t>(h)] - log_mass[static_cast<std::size_t>(at)];
      context_.kernels.elementwise.scale(mixed + at * config_.head_dim, 1.0f / (1.0f + std::exp(over)),
                                         config_.head_dim);
    }
  });
}

AttendShape AttentionBlock::shape_of(const KvState::Step& step, int layer) const {
  const HeadsConfig heads = heads_of(config_, layer);
  return {.first = step.first(),
          .tokens = step.tokens(),
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .scale = config_.attention_scale,
          .window = step.window(kept(layer)),
          .bf16 = !context_.exact};
}

// q, k, v = the norm of x times their weights, of rows [first, count).
void AttentionBlock::project_heads(int layer, const LayerWeights& w, std::span<ActivePart> parts,
                                   std::int64_t first, std::int64_t count) {
  const HeadsConfig heads = heads_of(config_, layer);
  const std::int64_t q_width = heads.q_width(), kv_width = heads.kv_width();
  steps_.norm(ws_.x_, w.attention_norm, w.attention_norm_bias, first, count, ws_.normed_);
  MatmulJob jobs[5] = {{&w.query, ws_.q_ + first * q_width, q_width}};
  std::size_t used = 1;
  if (w.key.rows > 0) jobs[used++] = {&w.key, ws_.k_ + first * kv_width, kv_width};
  if (w.value.rows > 0) jobs[used++] = {&w.value, ws_.v_ + first * kv_width, kv_width};
  if (w.cca) jobs[used++] = {&w.cca->value_delayed, ws_.v_ + kv_width / 2, kv_width};
  if (config_.gated_attention) jobs[used++] = {&w.query_gate, ws_.query_gate_, q_width};
  if (first < count)
    steps_.multiply({count - first, config_.width, ws_.normed_ + first * config_.width},
                    std::span(jobs, used));
  if (!w.cca) return;
  const PassTimer timer(context_.times, &PassTimes::rows);
  for (ActivePart& part : parts)
    carrying(part, [&] {
      mix_cca(
          config_, *w.cca, context_.kernels, context_.pool, part.step, layer, ws_.cca_,
          {ws_.q_ + part.begin * q_width, ws_.k_ + part.begin * kv_width, ws_.v_ + part.begin * kv_width});
    });
}

float AttentionBlock::growth_at(Pos position) const {
  if (!config_.query_growth) return 1.0f;
  const auto [rate, period] = *config_.query_growth;
  return static_cast<float>(1.0 + rate * std::log(1.0 + static_cast<double>(position / period)));
}

// Biases, norms and rotation of the part's queries from row `first` on.
void AttentionBlock::turn_queries(ActivePart& part, int layer, const LayerWeights& w, std::int64_t first,
                                  QueryViews& queries) {
  KvState::Step& step = part.step;
  const PassTimer timer(context_.times, &PassTimes::rows);
  const ElementwiseRow& rows = context_.kernels.elementwise;
  const HeadsConfig heads = heads_of(config_, layer);
  const std::size_t rope = rope_of(layer);
  for_rows(context_.pool, first, step.tokens(), [&](std::int64_t t) {
    const std::int64_t row = part.begin + t;
    float* q = ws_.q_ + row * heads.q_width();
    if (!w.query_bias.empty()) rows.add(q, w.query_bias.data(), heads.q_width());
    const bool observed = owns_rows(layer) && step.observes(kept(layer), t),
               together = config_.heads_normed_together;
    if (together) steps_.norm_head(q, w.query_norm);
    const float growth = growth_at(step.first() + t);
    for (int h = 0; h < heads.heads; ++h) {
      float* head = q + h * heads.head_dim;
      if (!together) steps_.norm_head(head, w.query_norm);
      if (growth != 1.0f) rows.scale(head, growth, heads.head_dim);
      if (observed) step.observe_query(context_.kernels, kept(layer), t, h, head);
      queries.copy(rows, t, h);
      steps_.rotate(head, rope, row);
    }
  });
}

// The same of keys and values, which go into the state.
void AttentionBlock::write_rows(ActivePart& part, int layer, const LayerWeights& w) {
  KvState::Step& step = part.step;
  const PassTimer timer(context_.times, &PassTimes::rows);
  const ElementwiseRow& rows = context_.kernels.elementwise;
  const HeadsConfig heads = heads_of(config_, layer);
  const std::int64_t kv_width = heads.kv_width();
  const std::size_t rope = rope_of(layer);
  for_rows(context_.pool, 0, step.tokens(), [&](std::int64_t t) {
    const std::int64_t row = part.begin + t;
    float* k = ws_.k_ + row * kv_width;
    float* v = ws_.v_ + row * kv_width;
    if (!w.key_bias.empty()) rows.add(k, w.key_bias.data(), kv_width);
    if (config_.layers[static_cast<std::size_t>(layer)].values_are_keys)
      std::copy_n(k, kv_width, v);
    else if (!w.value_bias.empty())
      rows.add(v, w.value_bias.data(), kv_width);
    if (config_.heads_normed_together) steps_.norm_head(k, w.key_norm);
    for (int h = 0; h < heads.kv_heads; ++h) {
      float *key = k + h * heads.head_dim, *value = v + h * heads.head_dim;
      if (!config_.heads_normed_together) steps_.norm_head(key, w.key_norm);
      steps_.norm_head(value, w.value_norm);
      steps_.rotate(key, rope, row);
      step.write(rows, kept(layer), h, t, key, value);
    }
  });
}

void AttentionBlock::gate(std::int64_t skip, std::int64_t count) {
  const PassTimer timer(context_.times, &PassTimes::rows);
  const std::int64_t width = config_.heads * config_.head_dim;
  for_rows(context_.pool, skip, count, [&](std::int64_t t) {
    context_.kernels.elementwise.sigmoid_mul(ws_.mixed_ + t * width, ws_.query_gate_ + t * width, width);
  });
}

}  // namespace kvtide
