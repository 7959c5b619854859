#include "model/decoder.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "kernels/attend.h"
#include "kvtide/error.h"
#include "model/far_share_samples.h"
#include "model/for_rows.h"
#include "model/pass_timer.h"
#include "model/query_views.h"
#include "model/row_steps.h"
#include "state/shadow.h"

namespace kvtide {
namespace {

void require_finite(std::span<const float> values, Pos first) {
  for (const float value : values)
    if (!(value - value == 0.0f))
      throw Error(ErrorCode::numeric,
                  cat("the activations at position ", first,
                      " or after are not finite: the model or its KV type cannot run this text"));
}

}  // namespace

class ForwardPass {
 public:
  ForwardPass(const DecoderContext& context, Workspace& workspace)
      : config_(context.config),
        weights_(context.weights),
        context_(context),
        ws_(workspace),
        steps_(context, workspace) {}

  // The rest of a pass is what no part of it took.
  std::span<const float> run(KvState& state, std::span<const TokenId> tokens, std::int64_t wanted) {
    if (context_.times == nullptr) return pass(state, tokens, wanted);
    const Stopwatch watch;
    const double before = context_.times->total();
    const std::span<const float> hidden = pass(state, tokens, wanted);
    context_.times->rest += watch.seconds() - (context_.times->total() - before);
    return hidden;
  }

  std::span<const float> pass(KvState& state, std::span<const TokenId> tokens, std::int64_t wanted) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    KvState::Step step = state.begin(count);
    samples_ = FarShareSamples(step.sampled());
    ws_.most_tokens_ = std::max(ws_.most_tokens_, count);
    steps_.embed(tokens, step.first());
    for (std::size_t r = 0; r < ws_.ropes_.size(); ++r)
      ws_.ropes_[r].fill(step.first(), count, ws_.cosine_[r], ws_.sine_[r]);

    for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
      show_layer(layer, count);
      // After the last layer's keys and values are stored, only the wanted rows matter.
      const bool last = layer + 1 == static_cast<int>(config_.layers.size());
      const std::int64_t skip = last ? count - wanted : 0;
      attention(step, layer, skip, count);
      if (context_.on_residual)
        context_.on_residual(layer, {ws_.x_, static_cast<std::size_t>(count * config_.width)});
      if (count > skip) steps_.feed_forward(layer, skip, count);
    }
    show_layer(static_cast<int>(config_.layers.size()), count);
    steps_.norm(ws_.x_, weights_.output_norm(), weights_.output_norm_bias(), count - wanted, count,
                ws_.normed_);
    const std::span<const float> hidden(ws_.normed_ + (count - wanted) * config_.width,
                                        static_cast<std::size_t>(wanted * config_.width));
    // Rows that nobody wants count, too: what they wrote into the memory would reach later tokens.
    require_finite({ws_.x_, static_cast<std::size_t>(count * config_.width)}, step.first());
    require_finite(hidden, step.first());
    if (!samples_.empty()) step.measured(samples_.shares());
    step.commit();
    return hidden;
  }

 private:
  void show_layer(int layer, std::int64_t count) {
    if (context_.on_layer)
      context_.on_layer(layer, {ws_.x_, static_cast<std::size_t>(count * config_.width)});
  }

  void attention(KvState::Step& step, int layer, std::int64_t skip, std::int64_t count) {
    const LayerWeights& w = weights_.layer(layer);
    const std::int64_t q_width = config_.heads * config_.head_dim;

    // References, and tokens that a shadow looks at, may be among rows that nobody else wants.
    const bool shadowed = context_.shadow != nullptr && context_.shadow->looks_at(layer, step.first(), count);
    const bool observed = step.observes(layer) || shadowed;
    const std::int64_t attended = observed ? 0 : skip;
    project_heads(step, layer, w, count);
    const auto spans = step.spans(layer);
    const std::size_t rope = rope_of(layer);
    QueryViews queries(angles_, {rope, ws_.ropes_[rope], step.first(), step.tokens()}, spans,
                       {ws_.q_, config_.heads, config_.head_dim});
    write_heads(step, layer, w, queries);

    AttendInput input{shape_of(step, layer), queries.views(), queries.rows(), spans};
    if (!samples_.empty() && step.is_measured(layer))
      samples_.add(context_.pool, context_.kernels.attend, input, step.near());
    if (attended == count) return;

    queries.skip(attended);
    input.shape.first += attended;
    input.shape.tokens -= attended;
    std::vector<float> log_mass(observed ? static_cast<std::size_t>(count * config_.heads) : 0);
    {
      const PassTimer timer(context_.times, &PassTimes::attention);
      attend(context_.pool, context_.kernels.attend, input, ws_.mixed_ + attended * q_width,
             observed ? log_mass.data() : nullptr);
    }
    for (std::int64_t t = 0; t < count; ++t)
      if (step.observes(layer, t)) step.observe_log_mass(layer, t, log_mass.data() + t * config_.heads);
    if (shadowed)
      context_.shadow->compare(context_.pool, context_.kernels, step.state(), layer, input, ws_.mixed_,
                               log_mass.data());
    if (skip == count) return;

    steps_.project(w.output, ws_.mixed_, q_width, skip, count);
    steps_.add_residual(w.output_bias, w.attention_post_norm, w.attention_scale, skip, count);
  }

  AttendShape shape_of(const KvState::Step& step, int layer) const {
    return {.first = step.first(),
            .tokens = step.tokens(),
            .heads = config_.heads,
            .kv_heads = config_.kv_heads,
            .head_dim = config_.head_dim,
            .scale = config_.attention_scale,
            .window = step.window(layer),
            .bf16 = !context_.exact};
  }

  // q, k, v = the norm of x times their weights.
  void project_heads(KvState::Step& step, int layer, const LayerWeights& w, std::int64_t count) {
    const std::int64_t q_width = config_.heads * config_.head_dim,
                       kv_width = config_.kv_heads * config_.head_dim;
    steps_.norm(ws_.x_, w.attention_norm, w.attention_norm_bias, 0, count, ws_.normed_);
    const Activations x = steps_.activations(ws_.normed_, count, config_.width);
    const MatmulJob jobs[] = {{&w.query, ws_.q_, q_width},
                              {&w.key, ws_.k_, kv_width},
                              {&w.value, ws_.v_, kv_width},
                              {w.cca ? &w.cca->value_delayed : nullptr, ws_.v_ + kv_width / 2, kv_width}};
    steps_.multiply(x, std::span(jobs, w.cca ? 4 : 3));
    if (!w.cca) return;
    const PassTimer timer(context_.times, &PassTimes::rows);
    mix_cca(config_, *w.cca, context_.kernels, context_.pool, step, layer, ws_.cca_,
            {ws_.q_, ws_.k_, ws_.v_});
  }

  std::size_t rope_of(int layer) const {
    return static_cast<std::size_t>(config_.layers[static_cast<std::size_t>(layer)].rope);
  }

  // Biases, norms and rotation; keys and values go into the state.
  void write_heads(KvState::Step& step, int layer, const LayerWeights& w, QueryViews& queries) {
    const PassTimer timer(context_.times, &PassTimes::rows);
    const ElementwiseRow& rows = context_.kernels.elementwise;
    const std::int64_t head_dim = config_.head_dim;
    const std::int64_t q_width = config_.heads * head_dim, kv_width = config_.kv_heads * head_dim;
    const std::size_t rope = rope_of(layer);
    for_rows(context_.pool, 0, step.tokens(), [&](std::int64_t t) {
      float* q = ws_.q_ + t * q_width;
      float* k = ws_.k_ + t * kv_width;
      float* v = ws_.v_ + t * kv_width;
      if (!w.query_bias.empty()) rows.add(q, w.query_bias.data(), q_width);
      if (!w.key_bias.empty()) rows.add(k, w.key_bias.data(), kv_width);
      if (!w.value_bias.empty()) rows.add(v, w.value_bias.data(), kv_width);
      const bool observed = step.observes(layer, t);
      for (int h = 0; h < config_.heads; ++h) {
        float* head = q + h * head_dim;
        steps_.norm_head(head, w.query_norm);
        if (observed) step.observe_query(layer, t, h, head);
        queries.copy(rows, t, h);
        steps_.rotate(head, rope, t);
      }
      for (int h = 0; h < config_.kv_heads; ++h) {
        steps_.norm_head(k + h * head_dim, w.key_norm);
        steps_.rotate(k + h * head_dim, rope, t);
        step.write(rows, layer, h, t, k + h * head_dim, v + h * head_dim);
      }
    });
  }

  const ModelConfig& config_;
  const Weights& weights_;
  const DecoderContext& context_;
  Workspace& ws_;
  RowSteps steps_;
  StepAngles angles_;
  FarShareSamples samples_;
};

std::span<const float> forward(const DecoderContext& context, Workspace& workspace, KvState& state,
                               std::span<const TokenId> tokens, std::int64_t wanted) {
  return ForwardPass(context, workspace).run(state, tokens, wanted);
}

void logits(const DecoderContext& context, Workspace& workspace, const float* hidden, std::int64_t rows,
            float* out) {
  const Activations x = RowSteps(context, workspace).activations(hidden, rows, context.config.width);
  const PassTimer timer(context.times, &PassTimes::head);
  const MatmulJob job{&context.weights.head(), out, context.config.vocab};
  matmul(context.pool, context.kernels.matmul, x, {&job, 1});
}

}  // namespace kvtide
