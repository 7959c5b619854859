#include "model/decoder.h"

#include <algorithm>
#include <cmath>
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

bool finite(const float* values, std::int64_t n) {
  return std::all_of(values, values + n, [](float value) { return value - value == 0.0f; });
}

}  // namespace

class ForwardPass {
 public:
  ForwardPass(const DecoderContext& context, Workspace& workspace)
      : config_(context.config),
        weights_(context.weights),
        context_(context),
        ws_(workspace),
        steps_(context, workspace),
        kept_(config_.layers.size(), -1) {
    int next = 0;
    for (const int layer : attention_layers(config_)) kept_[static_cast<std::size_t>(layer)] = next++;
  }

  // The rest of a pass is what no part of it took.
  std::vector<PassRows> run(std::span<const PassPart> parts) {
    if (context_.times == nullptr) return pass(parts);
    const Stopwatch watch;
    const double before = context_.times->total();
    std::vector<PassRows> rows = pass(parts);
    context_.times->rest += watch.seconds() - (context_.times->total() - before);
    return rows;
  }

 private:
  // One text of the pass; its rows lie in [begin, begin + count) of every array.
  struct Part {
    const PassPart& asked;
    KvState::Step step;
    std::int64_t begin, count;
    StepAngles angles;
    FarShareSamples samples;
    std::string not_finite;
  };

  std::vector<PassRows> pass(std::span<const PassPart> asked) {
    begin(asked);
    for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
      show_layer(layer);
      // After the last layer's keys and values are stored, only the wanted rows matter. Those of the first part that
      // nobody wants are left out; the others rarely have any.
      const bool last = layer + 1 == static_cast<int>(config_.layers.size());
      const std::int64_t skip = last ? parts_[0].count - parts_[0].asked.wanted : 0;
      if (weights_.layer(layer).conv)
        short_convolution(layer, skip);
      else
        attention(layer, skip);
      if (context_.on_residual)
        context_.on_residual(layer, {ws_.x_, static_cast<std::size_t>(count_ * config_.width)});
      if (count_ > skip) steps_.feed_forward(layer, skip, count_);
    }
    show_layer(static_cast<int>(config_.layers.size()));
    std::vector<PassRows> rows(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) finish(parts_[i], rows[i]);
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (rows[i].not_finite.empty())
        parts_[i].step.commit(asked[i].keep ? asked[i].keep(rows[i].hidden) : parts_[i].count);
    return rows;
  }

  void begin(std::span<const PassPart> asked) {
    parts_.reserve(asked.size());
    for (const PassPart& part : asked) {
      const auto count = static_cast<std::int64_t>(part.tokens.size());
      KvState::Step step = part.state.begin(count, part.keep != nullptr);
      FarShareSamples samples(step.sampled());
      parts_.push_back({part, std::move(step), count_, count, {}, std::move(samples), {}});
      count_ += count;
    }
    ws_.most_tokens_ = std::max(ws_.most_tokens_, count_);
    for (const Part& part : parts_) {
      steps_.embed(part.asked.tokens, part.step.first(), part.begin);
      for (std::size_t r = 0; r < ws_.ropes_.size(); ++r) {
        const std::int64_t at = part.begin * ws_.ropes_[r].pairs();
        ws_.ropes_[r].fill(part.step.first(), part.count, ws_.cosine_[r] + at, ws_.sine_[r] + at);
      }
    }
  }

  // The wanted rows, normed. Rows that nobody wants count, too, when numbers are not finite: what they wrote into the
  // memory would reach later tokens.
  void finish(Part& part, PassRows& rows) {
    const std::int64_t wanted = part.asked.wanted, end = part.begin + part.count, width = config_.width;
    steps_.norm(ws_.x_, weights_.output_norm(), weights_.output_norm_bias(), end - wanted, end, ws_.normed_);
    rows.hidden = {ws_.normed_ + (end - wanted) * width, static_cast<std::size_t>(wanted * width)};
    if (part.not_finite.empty() && !(finite(ws_.x_ + part.begin * width, part.count * width) &&
                                     finite(rows.hidden.data(), wanted * width)))
      part.not_finite = cat("the activations at position ", part.step.first(),
                            " or after are not finite: the model or its KV type cannot run this text");
    rows.not_finite = std::move(part.not_finite);
    if (!part.samples.empty()) part.step.measured(part.samples.shares());
  }

  void show_layer(int layer) {
    if (context_.on_layer)
      context_.on_layer(layer, {ws_.x_, static_cast<std::size_t>(count_ * config_.width)});
  }

  void attention(int layer, std::int64_t skip) {
    const LayerWeights& w = weights_.layer(layer);
    project_heads(layer, w);
    for (Part& part : parts_) attend_part(part, layer, w, std::max<std::int64_t>(0, skip - part.begin));
    if (skip == count_) return;
    steps_.project(w.output, ws_.mixed_, config_.heads * config_.head_dim, skip, count_);
    steps_.add_residual(w.output_bias, w.attention_post_norm, w.attention_scale, skip, count_);
  }

  void short_convolution(int layer, std::int64_t skip) {
    const LayerWeights& w = weights_.layer(layer);
    const std::int64_t width = config_.width;
    steps_.norm(ws_.x_, w.attention_norm, w.attention_norm_bias, 0, count_, ws_.normed_);
    const MatmulJob in{&w.conv->in, ws_.conv_.thirds, 3 * width};
    steps_.multiply({count_, width, ws_.normed_}, {&in, 1});
    {
      const PassTimer timer(context_.times, &PassTimes::rows);
      for (Part& part : parts_)
        carrying(part, [&] {
          run_short_conv(
              config_, *w.conv, context_.pool, part.step, layer,
              {ws_.conv_.thirds + part.begin * 3 * width, ws_.conv_.u, ws_.conv_.y + part.begin * width});
        });
    }
    if (skip == count_) return;
    steps_.project(w.conv->out, ws_.conv_.y, width, skip, count_);
    steps_.add_residual(w.conv->out_bias, w.attention_post_norm, w.attention_scale, skip, count_);
  }

  // What a part carries may turn out not to be finite: then it alone fails.
  template <class Call>
  void carrying(Part& part, Call call) {
    try {
      call();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::numeric) throw;
      part.not_finite = error.what();
    }
  }

  // The number that a layer with attention has in a state.
  int kept(int layer) const { return kept_[static_cast<std::size_t>(layer)]; }

  // mixed = attention of the part's rows; the first `skip` may be left out.
  void attend_part(Part& part, int layer, const LayerWeights& w, std::int64_t skip) {
    KvState::Step& step = part.step;
    const std::int64_t q_width = config_.heads * config_.head_dim, count = part.count;
    // References, and tokens that a shadow looks at, may be among rows that nobody else wants.
    Shadow* const shadow = part.asked.shadow;
    const bool shadowed = shadow != nullptr && shadow->looks_at(kept(layer), step.first(), count);
    const bool observed = step.observes(kept(layer)) || shadowed;
    const std::int64_t attended = observed ? 0 : std::min(skip, count);
    const auto spans = step.spans(kept(layer));
    const std::size_t rope = rope_of(layer);
    QueryViews queries(part.angles, {rope, ws_.ropes_[rope], step.first(), step.tokens()}, spans,
                       {ws_.q_ + part.begin * q_width, config_.heads, config_.head_dim});
    write_heads(part, layer, w, queries);

    AttendInput input{shape_of(step, layer), queries.views(), queries.rows(), spans};
    if (!part.samples.empty() && step.is_measured(kept(layer)))
      part.samples.add(context_.pool, context_.kernels.attend, input, step.near());
    if (attended == count) return;

    queries.skip(attended);
    input.shape.first += attended;
    input.shape.tokens -= attended;
    float* const mixed = ws_.mixed_ + part.begin * q_width;
    std::vector<float> log_mass(observed ? static_cast<std::size_t>(count * config_.heads) : 0);
    {
      const PassTimer timer(context_.times, &PassTimes::attention);
      attend(context_.pool, context_.kernels.attend, input, mixed + attended * q_width,
             observed ? log_mass.data() : nullptr);
    }
    for (std::int64_t t = 0; t < count; ++t)
      if (step.observes(kept(layer), t))
        step.observe_log_mass(kept(layer), t, log_mass.data() + t * config_.heads);
    if (shadowed)
      shadow->compare(context_.pool, context_.kernels, step.state(), kept(layer), input, mixed,
                      log_mass.data());
  }

  AttendShape shape_of(const KvState::Step& step, int layer) const {
    return {.first = step.first(),
            .tokens = step.tokens(),
            .heads = config_.heads,
            .kv_heads = config_.kv_heads,
            .head_dim = config_.head_dim,
            .scale = config_.attention_scale,
            .window = step.window(kept(layer)),
            .bf16 = !context_.exact};
  }

  // q, k, v = the norm of x times their weights.
  void project_heads(int layer, const LayerWeights& w) {
    const std::int64_t q_width = config_.heads * config_.head_dim,
                       kv_width = config_.kv_heads * config_.head_dim;
    steps_.norm(ws_.x_, w.attention_norm, w.attention_norm_bias, 0, count_, ws_.normed_);
    const MatmulJob jobs[] = {{&w.query, ws_.q_, q_width},
                              {&w.key, ws_.k_, kv_width},
                              {&w.value, ws_.v_, kv_width},
                              {w.cca ? &w.cca->value_delayed : nullptr, ws_.v_ + kv_width / 2, kv_width}};
    steps_.multiply({count_, config_.width, ws_.normed_}, std::span(jobs, w.cca ? 4 : 3));
    if (!w.cca) return;
    const PassTimer timer(context_.times, &PassTimes::rows);
    for (Part& part : parts_)
      carrying(part, [&] {
        mix_cca(
            config_, *w.cca, context_.kernels, context_.pool, part.step, layer, ws_.cca_,
            {ws_.q_ + part.begin * q_width, ws_.k_ + part.begin * kv_width, ws_.v_ + part.begin * kv_width});
      });
  }

  std::size_t rope_of(int layer) const {
    return static_cast<std::size_t>(config_.layers[static_cast<std::size_t>(layer)].rope);
  }

  float growth_at(Pos position) const {
    if (!config_.query_growth) return 1.0f;
    const auto [rate, period] = *config_.query_growth;
    return static_cast<float>(1.0 + rate * std::log(1.0 + static_cast<double>(position / period)));
  }

  // Biases, norms and rotation; keys and values go into the state.
  void write_heads(Part& part, int layer, const LayerWeights& w, QueryViews& queries) {
    KvState::Step& step = part.step;
    const PassTimer timer(context_.times, &PassTimes::rows);
    const ElementwiseRow& rows = context_.kernels.elementwise;
    const std::int64_t head_dim = config_.head_dim;
    const std::int64_t q_width = config_.heads * head_dim, kv_width = config_.kv_heads * head_dim;
    const std::size_t rope = rope_of(layer);
    for_rows(context_.pool, 0, step.tokens(), [&](std::int64_t t) {
      const std::int64_t row = part.begin + t;
      float* q = ws_.q_ + row * q_width;
      float* k = ws_.k_ + row * kv_width;
      float* v = ws_.v_ + row * kv_width;
      if (!w.query_bias.empty()) rows.add(q, w.query_bias.data(), q_width);
      if (!w.key_bias.empty()) rows.add(k, w.key_bias.data(), kv_width);
      if (!w.value_bias.empty()) rows.add(v, w.value_bias.data(), kv_width);
      const bool observed = step.observes(kept(layer), t), together = config_.heads_normed_together;
      if (together) {
        steps_.norm_head(q, w.query_norm);
        steps_.norm_head(k, w.key_norm);
      }
      const float growth = growth_at(step.first() + t);
      for (int h = 0; h < config_.heads; ++h) {
        float* head = q + h * head_dim;
        if (!together) steps_.norm_head(head, w.query_norm);
        if (growth != 1.0f) rows.scale(head, growth, head_dim);
        if (observed) step.observe_query(kept(layer), t, h, head);
        queries.copy(rows, t, h);
        steps_.rotate(head, rope, row);
      }
      for (int h = 0; h < config_.kv_heads; ++h) {
        if (!together) steps_.norm_head(k + h * head_dim, w.key_norm);
        steps_.rotate(k + h * head_dim, rope, row);
        step.write(rows, kept(layer), h, t, k + h * head_dim, v + h * head_dim);
      }
    });
  }

  const ModelConfig& config_;
  const Weights& weights_;
  const DecoderContext& context_;
  Workspace& ws_;
  RowSteps steps_;
  std::vector<int> kept_;  // by layer; -1: it keeps no rows
  std::vector<Part> parts_;
  std::int64_t count_ = 0;  // rows of all parts
};

std::vector<PassRows> forward(const DecoderContext& context, Workspace& workspace,
                              std::span<const PassPart> parts) {
  return ForwardPass(context, workspace).run(parts);
}

std::span<const float> forward(const DecoderContext& context, Workspace& workspace, const PassPart& part) {
  const PassRows rows = std::move(forward(context, workspace, {&part, 1})[0]);
  if (!rows.not_finite.empty()) throw Error(ErrorCode::numeric, rows.not_finite);
  return rows.hidden;
}

void logits(const DecoderContext& context, Workspace& workspace, const float* hidden, std::int64_t rows,
            float* out) {
  const MatmulJob job{&context.weights.head(), out, context.config.vocab};
  RowSteps(context, workspace).multiply({rows, context.config.width, hidden}, {&job, 1}, &PassTimes::head);
}

}  // namespace kvtide
