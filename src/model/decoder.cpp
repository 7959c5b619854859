#include "model/decoder.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
#include "model/for_rows.h"
#include "model/layer_blocks.h"
#include "model/layer_inputs.h"
#include "model/pass_timer.h"
#include "model/row_steps.h"

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
        blocks_(context, workspace, steps_) {
    for (std::size_t i = 0; i < config_.layers.size(); ++i)
      if (config_.layers[i].rows_of < 0 && config_.layers[i].mixer != Mixer::none)
        last_keeper_ = static_cast<int>(i);
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
  std::vector<PassRows> pass(std::span<const PassPart> asked) {
    begin(asked);
    for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
      show_layer(layer);
      // After the last keys and values are stored, only the wanted rows matter. Those of the first part that
      // nobody wants are left out; the others rarely have any.
      const bool last = layer >= last_keeper_;
      const std::int64_t skip = last ? parts_[0].count - parts_[0].asked.wanted : 0;
      for (LayerBlock* block : blocks_.mixing(layer)) block->run(layer, parts_, skip, count_);
      if (context_.on_residual)
        context_.on_residual(layer, {ws_.x_, static_cast<std::size_t>(count_ * config_.width)});
      for (LayerBlock* block : blocks_.behind(layer)) block->run(layer, parts_, skip, count_);
    }
    show_layer(static_cast<int>(config_.layers.size()));
    std::vector<PassRows> rows(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) finish(parts_[i], rows[i]);
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (rows[i].not_finite.empty() && asked[i].repetition == nullptr) commit(asked[i], parts_[i], rows[i]);
    return rows;
  }

  // Parts in front of one that fails have their tokens by then.
  static void commit(const PassPart& asked, ActivePart& part, PassRows& rows) {
    try {
      part.step.commit(asked.keep ? asked.keep(rows.hidden) : part.count);
    } catch (...) {
      rows.failure = std::current_exception();
    }
  }

  void begin(std::span<const PassPart> asked) {
    parts_.reserve(asked.size());
    for (const PassPart& part : asked) {
      const auto count = static_cast<std::int64_t>(part.tokens.size());
      KvState::Step step = part.repetition != nullptr ? part.state.begin_again(count)
                                                      : part.state.begin(count, part.keep != nullptr);
      FarShareSamples samples(step.sampled());
      parts_.push_back({part, std::move(step), count_, count, {}, std::move(samples), {}});
      count_ += count;
    }
    ws_.most_tokens_ = std::max(ws_.most_tokens_, count_);
    for (const ActivePart& part : parts_) {
      steps_.embed(part.asked.tokens, part.step.first(), part.begin);
      if (config_.layer_inputs > 0)
        make_layer_inputs(context_, steps_, part.asked.tokens, ws_.x_ + part.begin * config_.width,
                          ws_.layer_inputs_.values + part.begin *
                                                         static_cast<std::int64_t>(config_.layers.size()) *
                                                         config_.layer_inputs);
      for (std::size_t r = 0; r < ws_.ropes_.size(); ++r) {
        const std::int64_t at = part.begin * ws_.ropes_[r].pairs();
        ws_.ropes_[r].fill(part.step.first(), part.count, ws_.cosine_[r] + at, ws_.sine_[r] + at);
      }
    }
  }

  // The wanted rows, normed. Rows that nobody wants count, too, when numbers are not finite: what they wrote into the
  // memory would reach later tokens.
  void finish(ActivePart& part, PassRows& rows) {
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

  const ModelConfig& config_;
  const Weights& weights_;
  const DecoderContext& context_;
  Workspace& ws_;
  RowSteps steps_;
  LayerBlocks blocks_;
  std::vector<ActivePart> parts_;
  std::int64_t count_ = 0;  // rows of all parts
  int last_keeper_ = 0;     // the last layer that keeps rows, or carries something, of its own
};

std::vector<PassRows> forward(const DecoderContext& context, Workspace& workspace,
                              std::span<const PassPart> parts) {
  return ForwardPass(context, workspace).run(parts);
}

std::span<const float> forward(const DecoderContext& context, Workspace& workspace, const PassPart& part) {
  const PassRows rows = std::move(forward(context, workspace, {&part, 1})[0]);
  if (rows.failure) std::rethrow_exception(rows.failure);
  if (!rows.not_finite.empty()) throw Error(ErrorCode::numeric, rows.not_finite);
  return rows.hidden;
}

void logits(const DecoderContext& context, Workspace& workspace, const float* hidden, std::int64_t rows,
            float* out) {
  const MatmulJob job{&context.weights.head(), out, context.config.vocab};
  RowSteps(context, workspace).multiply({rows, context.config.width, hidden}, {&job, 1}, &PassTimes::head);
  const float scale = context.config.logit_scale, cap = context.config.logit_cap;
  if (scale == 1.0f && cap == 0.0f) return;
  // A vocabulary may be long, and there is often one row.
  constexpr std::int64_t kPiece = 16384;
  const std::int64_t pieces = (context.config.vocab + kPiece - 1) / kPiece;
  for_rows(context.pool, 0, rows * pieces, [&](std::int64_t i) {
    const std::int64_t first = i % pieces * kPiece, count = std::min(kPiece, context.config.vocab - first);
    float* const piece = out + i / pieces * context.config.vocab + first;
    if (scale != 1.0f) context.kernels.elementwise.scale(piece, scale, count);
    if (cap != 0.0f) context.kernels.elementwise.soft_cap(piece, cap, count);
  });
}

}  // namespace kvtide
