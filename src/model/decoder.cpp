#include "model/decoder.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/text.h"
#include "kernels/attend.h"
#include "kvtide/error.h"
#include "model/far_share_samples.h"
#include "model/for_rows.h"
#include "model/pass_timer.h"
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

std::int64_t widest_row(const ModelConfig& c) {
  return std::max({c.width, c.hidden, static_cast<std::int64_t>(c.heads) * c.head_dim});
}

}  // namespace

Workspace::Workspace(const ModelConfig& c, std::int64_t max_tokens) : max_tokens_(max_tokens) {
  for (const RopeConfig& rope : c.ropes) ropes_.emplace_back(rope, c.rope_dims);
  const std::int64_t q_width = static_cast<std::int64_t>(c.heads) * c.head_dim;
  const std::int64_t kv_width = static_cast<std::int64_t>(c.kv_heads) * c.head_dim;
  const std::int64_t widest = (widest_row(c) + 31) / 32 * 32;

  // First pass counts, second pass hands out: every array starts on a cache line.
  std::int64_t used = 0;
  for (int pass = 0; pass < 2; ++pass) {
    used = 0;
    const auto take = [&](std::int64_t bytes_per_token, std::int64_t more_tokens = 0) {
      std::byte* start = memory_.data() == nullptr ? nullptr : memory_.data() + used;
      used += (bytes_per_token * (max_tokens + more_tokens) + 63) / 64 * 64;
      return start;
    };
    const auto floats = [&](std::int64_t n, std::int64_t more_tokens = 0) {
      return reinterpret_cast<float*>(take(n * 4, more_tokens));
    };
    x_ = floats(c.width);
    normed_ = floats(c.width);
    q_ = floats(q_width);
    k_ = floats(kv_width);
    v_ = floats(kv_width);
    mixed_ = floats(q_width);
    gate_ = floats(c.hidden);
    up_ = floats(c.hidden);
    cosine_.clear();
    sine_.clear();
    for (const RopeTable& rope : ropes_) {
      cosine_.push_back(floats(rope.pairs()));
      sine_.push_back(floats(rope.pairs()));
    }
    if (c.convolved) {
      const std::int64_t channels = CcaSizes(c).channels;
      cca_ = {floats(channels, 2), floats(channels, 1)};
    }
    if (c.experts) {
      float* rows = floats(ExpertsScratch::floats_per_token(c));
      if (pass == 1) experts_ = ExpertsScratch::in(rows, c, max_tokens);
      experts_.gate = gate_;
      experts_.up = up_;
    }
    quants_ = reinterpret_cast<std::int8_t*>(take(widest));
    steps_ = floats(widest / 32);
    step_sums_ = floats(widest / 32);
    sums16_ = reinterpret_cast<std::int32_t*>(take(widest / 16 * 4));
    if (pass == 0) memory_ = Buffer(static_cast<std::size_t>(used));
  }
}

std::int64_t Workspace::bytes() const {
  return static_cast<std::int64_t>(memory_.size()) / max_tokens_ * most_tokens_;
}

class ForwardPass {
 public:
  ForwardPass(const DecoderContext& context, Workspace& workspace)
      : config_(context.config),
        weights_(context.weights),
        rows_(context.kernels.elementwise),
        context_(context),
        ws_(workspace) {}

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
    embed(tokens, step.first());
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
      if (count > skip) feed_forward(layer, skip, count);
    }
    show_layer(static_cast<int>(config_.layers.size()), count);
    norm(ws_.x_, weights_.output_norm(), weights_.output_norm_bias(), count - wanted, count, ws_.normed_);
    const std::span<const float> hidden(ws_.normed_ + (count - wanted) * config_.width,
                                        static_cast<std::size_t>(wanted * config_.width));
    // Rows that nobody wants count, too: what they wrote into the memory would reach later tokens.
    require_finite({ws_.x_, static_cast<std::size_t>(count * config_.width)}, step.first());
    require_finite(hidden, step.first());
    if (!samples_.empty()) step.measured(samples_.shares());
    step.commit();
    return hidden;
  }

  Activations activations(const float* x, std::int64_t rows, std::int64_t k) {
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

 private:
  struct Angles {
    std::size_t rope;
    ViewPoint view;
    std::vector<float> cosine, sine;  // [tokens of the step][pairs]
  };

  void show_layer(int layer, std::int64_t count) {
    if (context_.on_layer)
      context_.on_layer(layer, {ws_.x_, static_cast<std::size_t>(count * config_.width)});
  }

  void attention(KvState::Step& step, int layer, std::int64_t skip, std::int64_t count) {
    const LayerWeights& w = weights_.layer(layer);
    const std::int64_t head_dim = config_.head_dim, width = config_.width;
    const std::int64_t q_width = config_.heads * head_dim, kv_width = config_.kv_heads * head_dim;

    // References, and tokens that a shadow looks at, may be among rows that nobody else wants.
    const bool shadowed = context_.shadow != nullptr && context_.shadow->looks_at(layer, step.first(), count);
    const std::int64_t attended = step.observes(layer) || shadowed ? 0 : skip;
    norm(ws_.x_, w.attention_norm, w.attention_norm_bias, 0, count, ws_.normed_);
    const Activations x = activations(ws_.normed_, count, width);
    const MatmulJob jobs[] = {{&w.query, ws_.q_, q_width},
                              {&w.key, ws_.k_, kv_width},
                              {&w.value, ws_.v_, kv_width},
                              {w.cca ? &w.cca->value_delayed : nullptr, ws_.v_ + kv_width / 2, kv_width}};
    multiply(x, std::span(jobs, w.cca ? 4 : 3));
    if (w.cca) {
      const PassTimer timer(context_.times, &PassTimes::rows);
      mix_cca(config_, *w.cca, context_.kernels, context_.pool, step, layer, ws_.cca_,
              {ws_.q_, ws_.k_, ws_.v_});
    }

    const auto spans = step.spans(layer);
    const auto views = view_points(spans);
    const auto rope = static_cast<std::size_t>(config_.layers[static_cast<std::size_t>(layer)].rope);
    std::vector<float> moved((views.size() - 1) * static_cast<std::size_t>(count * q_width));
    std::vector<const Angles*> angles;
    for (std::size_t view = 1; view < views.size(); ++view)
      angles.push_back(&angles_for(rope, views[view], step));
    std::optional<PassTimer> row_timer(std::in_place, context_.times, &PassTimes::rows);
    for_rows(context_.pool, 0, count, [&](std::int64_t t) {
      float* q = ws_.q_ + t * q_width;
      float* k = ws_.k_ + t * kv_width;
      float* v = ws_.v_ + t * kv_width;
      if (!w.query_bias.empty()) rows_.add(q, w.query_bias.data(), q_width);
      if (!w.key_bias.empty()) rows_.add(k, w.key_bias.data(), kv_width);
      if (!w.value_bias.empty()) rows_.add(v, w.value_bias.data(), kv_width);
      const bool observed = step.observes(layer, t);
      for (int h = 0; h < config_.heads; ++h) {
        norm_head(q + h * head_dim, w.query_norm);
        if (observed) step.observe_query(layer, t, h, q + h * head_dim);
        // Seen from elsewhere: a copy of the unrotated query, rotated to where the view point stands.
        for (std::size_t view = 1; view < views.size(); ++view) {
          float* copy =
              moved.data() + ((static_cast<std::int64_t>(view) - 1) * count + t) * q_width + h * head_dim;
          std::memcpy(copy, q + h * head_dim, static_cast<std::size_t>(head_dim) * sizeof(float));
          const std::int64_t pairs = ws_.ropes_[rope].pairs();
          const Angles& a = *angles[view - 1];
          rows_.rope(copy, a.cosine.data() + t * pairs, a.sine.data() + t * pairs, pairs);
        }
        rotate(q + h * head_dim, rope, t);
      }
      for (int h = 0; h < config_.kv_heads; ++h) {
        norm_head(k + h * head_dim, w.key_norm);
        rotate(k + h * head_dim, rope, t);
        step.write(rows_, layer, h, t, k + h * head_dim, v + h * head_dim);
      }
    });
    row_timer.reset();
    std::vector<const float*> q;
    for (std::size_t view = 0; view < views.size(); ++view)
      q.push_back(view == 0 ? ws_.q_
                            : moved.data() + (static_cast<std::int64_t>(view) - 1) * count * q_width);
    AttendShape shape{.first = step.first(),
                      .tokens = count,
                      .heads = config_.heads,
                      .kv_heads = config_.kv_heads,
                      .head_dim = config_.head_dim,
                      .scale = config_.attention_scale,
                      .window = step.window(layer),
                      .bf16 = !context_.exact};
    if (!samples_.empty() && step.is_measured(layer))
      samples_.add(context_.pool, context_.kernels.attend, shape, step.near(), views, q, spans);
    if (attended == count) return;

    for (const float*& rows : q) rows += attended * q_width;
    shape.first += attended;
    shape.tokens -= attended;
    std::vector<float> log_mass;
    if (step.observes(layer) || shadowed) log_mass.resize(static_cast<std::size_t>(count * config_.heads));
    {
      const PassTimer timer(context_.times, &PassTimes::attention);
      attend(context_.pool, context_.kernels.attend, shape, views, q, spans, ws_.mixed_ + attended * q_width,
             log_mass.empty() ? nullptr : log_mass.data());
    }
    for (std::int64_t t = 0; t < count; ++t)
      if (step.observes(layer, t)) step.observe_log_mass(layer, t, log_mass.data() + t * config_.heads);
    if (shadowed)
      context_.shadow->compare(context_.pool, context_.kernels, step.state(), layer, shape, views, q, spans,
                               ws_.mixed_, log_mass.data());
    if (skip == count) return;

    project(w.output, ws_.mixed_, q_width, skip, count);
    add_residual(w.output_bias, w.attention_post_norm, w.attention_scale, skip, count);
  }

  void feed_forward(int layer, std::int64_t skip, std::int64_t count) {
    const LayerWeights& w = weights_.layer(layer);
    const std::int64_t hidden = config_.hidden;
    norm(ws_.x_, w.feed_forward_norm, w.feed_forward_norm_bias, skip, count, ws_.normed_);
    if (w.experts) {
      const auto make = [this](const float* rows, std::int64_t n, std::int64_t k) {
        return activations(rows, n, k);
      };
      const auto products = [this](const Activations& rows, std::span<const MatmulJob> jobs) {
        multiply(rows, jobs);
      };
      run_experts({config_, *w.experts, context_.kernels.elementwise, context_.pool, make, products},
                  ws_.experts_, skip, count, ws_.normed_ + skip * config_.width);
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

  void activate(const LayerWeights& w, std::int64_t skip, std::int64_t count) {
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

  void embed(std::span<const TokenId> tokens, Pos first) {
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
      decode_weight_row(context_.kernels.matmul, weights_.embedding(), tokens[static_cast<std::size_t>(t)],
                        x);
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

  void norm_head(float* head, const std::vector<float>& weight) {
    if (!weight.empty()) rows_.rms_norm(head, weight.data(), config_.head_dim, config_.norm_epsilon, head);
  }

  void rotate(float* head, std::size_t rope, std::int64_t t) {
    const std::int64_t pairs = ws_.ropes_[rope].pairs();
    rows_.rope(head, ws_.cosine_[rope] + t * pairs, ws_.sine_[rope] + t * pairs, pairs);
  }

  // Angles of the step's queries as seen from a view point; computed once per step.
  const Angles& angles_for(std::size_t rope, const ViewPoint& view, const KvState::Step& step) {
    for (const auto& known : angles_)
      if (known->rope == rope && known->view == view) return *known;
    auto made = std::make_unique<Angles>();
    made->rope = rope;
    made->view = view;
    const std::int64_t pairs = ws_.ropes_[rope].pairs();
    made->cosine.resize(static_cast<std::size_t>(step.tokens() * pairs));
    made->sine.resize(made->cosine.size());
    for (std::int64_t t = 0; t < step.tokens(); ++t)
      ws_.ropes_[rope].fill(view.seen_from(step.first() + t), 1, made->cosine.data() + t * pairs,
                            made->sine.data() + t * pairs);
    angles_.push_back(std::move(made));
    return *angles_.back();
  }

  // normed[skip .. count) = input rows * weight matrix
  void project(const WeightMatrix& w, const float* input, std::int64_t k, std::int64_t skip,
               std::int64_t count) {
    const Activations x = activations(input + skip * k, count - skip, k);
    const MatmulJob job{&w, ws_.normed_ + skip * config_.width, config_.width};
    multiply(x, {&job, 1});
  }

  void multiply(const Activations& x, std::span<const MatmulJob> jobs) {
    const PassTimer timer(context_.times, &PassTimes::matmul);
    matmul(context_.pool, context_.kernels.matmul, x, jobs);
  }

  void add_residual(const std::vector<float>& bias, const std::vector<float>& post_norm,
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

  void norm(const float* x, const std::vector<float>& weight, const std::vector<float>& bias,
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

  const ModelConfig& config_;
  const Weights& weights_;
  const ElementwiseRow& rows_;
  const DecoderContext& context_;
  Workspace& ws_;
  std::vector<std::unique_ptr<Angles>> angles_;
  FarShareSamples samples_;
};

std::span<const float> forward(const DecoderContext& context, Workspace& workspace, KvState& state,
                               std::span<const TokenId> tokens, std::int64_t wanted) {
  return ForwardPass(context, workspace).run(state, tokens, wanted);
}

void logits(const DecoderContext& context, Workspace& workspace, const float* hidden, std::int64_t rows,
            float* out) {
  const Activations x = ForwardPass(context, workspace).activations(hidden, rows, context.config.width);
  const PassTimer timer(context.times, &PassTimes::head);
  const MatmulJob job{&context.weights.head(), out, context.config.vocab};
  matmul(context.pool, context.kernels.matmul, x, {&job, 1});
}

}  // namespace kvtide
