#include "validate/plain_decoder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "kernels/codec.h"
#include "model/loaded_model.h"

namespace kvtide {

PlainDecoder::PlainDecoder(std::unique_ptr<PlainWeights> weights, ThreadPool& pool)
    : weights_(std::move(weights)), config_(weights_->config()), pool_(pool) {
  require_known(config_);
}

PlainDecoder::PlainDecoder(const std::string& path, ThreadPool& pool)
    : PlainDecoder(plain_weights(path), pool) {}

PlainMatrix PlainDecoder::matrix(Role role, int layer, std::int64_t rows, std::int64_t columns) const {
  PlainMatrix matrix = weights_->matrix(role, layer, rows, columns, {});
  return decoded_ ? decoded_once(std::move(matrix), role, layer) : matrix;
}

std::vector<float> PlainDecoder::vector(Role role, int layer, std::int64_t n) const {
  return weights_->vector(role, layer, n);
}

PlainDecoder::Rows PlainDecoder::normed(const Rows& x, Role weight, Role bias, int layer) const {
  const std::int64_t n = config_.width;
  if (!config_.pre_norms && (weight == Role::attention_norm || weight == Role::feed_forward_norm)) return x;
  const NormPlan plan = norm_plan(weight, bias, layer);
  if (plan.skipped) return x;
  const auto &w = plan.weight, &b = plan.bias;
  Rows y(x.size());
  for (std::size_t start = 0; start < x.size(); start += static_cast<std::size_t>(n)) {
    double mean = 0.0, square = 0.0;
    const auto row = std::span(x).subspan(start, static_cast<std::size_t>(n));
    if (plan.takes_mean) {
      for (const float value : row) mean += static_cast<double>(value);
      mean /= static_cast<double>(n);
    }
    for (const float value : row)
      square += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
    const double scale = 1.0 / std::sqrt(square / static_cast<double>(n) + plan.epsilon);
    for (std::size_t i = 0; i < row.size(); ++i)
      y[start + i] =
          static_cast<float>((static_cast<double>(row[i]) - mean) * scale * static_cast<double>(w[i]) +
                             (b.empty() ? 0.0 : static_cast<double>(b[i])));
  }
  return y;
}

void PlainDecoder::add_bias(Rows& y, Role role, int layer, std::int64_t n) const {
  const auto bias = vector(role, layer, n);
  if (bias.empty() || drops(role)) return;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
}

void PlainDecoder::norm_heads(Rows& y, Role role, int layer) const {
  const int heads = !config_.heads_normed_together ? 1
                    : role == Role::query_norm     ? config_.heads
                                                   : config_.kv_heads;
  const auto dim = static_cast<std::size_t>(heads * config_.head_dim);
  auto w = vector(role, layer, static_cast<std::int64_t>(dim));
  if (twist_.part == Twist::Part::all && slips(Slip::norm_weight_plus))
    for (float& x : w) x += static_cast<float>(twist_.number);
  for (std::size_t start = 0; start < y.size(); start += dim) {
    double square = 0.0;
    for (std::size_t i = 0; i < dim; ++i)
      square += static_cast<double>(y[start + i]) * static_cast<double>(y[start + i]);
    const double scale = 1.0 / std::sqrt(square / static_cast<double>(dim) + head_epsilon());
    for (std::size_t i = 0; i < dim; ++i)
      y[start + i] =
          static_cast<float>(static_cast<double>(y[start + i]) * scale * static_cast<double>(w[i]));
  }
}

std::vector<double> PlainDecoder::frequencies(int layer) const { return weights_->frequencies(layer); }

// Rows come out with pairs (i, i + pairs), however the checkpoint orders them.
void PlainDecoder::rotate(Rows& y, int layer, std::int64_t heads, std::int64_t shift) const {
  const Rotation plan = rotation(layer);
  const std::size_t dim = static_cast<std::size_t>(config_.head_dim), pairs = plan.frequencies.size();
  if (pairs == 0) return;
  const bool adjacent = config_.rope_interleaved != plan.paired_otherwise;
  std::vector<float> old(dim);
  for (std::size_t start = 0; start < y.size(); start += dim) {
    const auto token = static_cast<Pos>(start / (static_cast<std::size_t>(heads) * dim));
    const Pos position = (twist_.position ? twist_.position(token) : token) + shift;
    std::copy_n(y.begin() + static_cast<std::ptrdiff_t>(start), dim, old.begin());
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::size_t first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;
      const double a = static_cast<double>(old[first]), b = static_cast<double>(old[second]);
      const double angle = plan.angle(position, i);
      y[start + (plan.paired_otherwise ? first : i)] =
          static_cast<float>((a * std::cos(angle) - b * std::sin(angle)) * plan.magnitude);
      y[start + (plan.paired_otherwise ? second : i + pairs)] =
          static_cast<float>((a * std::sin(angle) + b * std::cos(angle)) * plan.magnitude);
    }
  }
}

// [tokens][heads * dim]: for every query the values of the rows that it sees, weighed by the softmax.
PlainDecoder::Rows PlainDecoder::mixed_values(const Rows& q, const Rows& k, const Rows& v, int layer,
                                              const Twist& twist) {
  const std::int64_t dim = config_.head_dim, heads = config_.heads, kv_heads = config_.kv_heads;
  const std::int64_t tokens = static_cast<std::int64_t>(q.size()) / (heads * dim);
  const auto window = twisted_window(layer);
  const auto sinks = config_.attention_sinks && !slips(Slip::sinks_ignored)
                         ? vector(Role::attention_sinks, layer, heads)
                         : std::vector<float>();
  Rows mixed(static_cast<std::size_t>(tokens * heads * dim));
  pool_.run(tokens * heads, [&](std::int64_t item) {
    const std::int64_t t = item / heads, h = item % heads;
    const std::int64_t g = slips(Slip::groups_by_remainder) ? h % kv_heads : h / (heads / kv_heads);
    std::vector<std::pair<double, std::int64_t>> seen;  // score, row
    for (std::int64_t row = 0; row < tokens; ++row) {
      const bool usual = row <= t && (!window || row > t - *window);
      if (!(twist.visible ? twist.visible(t, row, usual) : usual)) continue;
      double score = 0.0;
      for (std::int64_t i = 0; i < dim; ++i)
        score += static_cast<double>(q[static_cast<std::size_t>((t * heads + h) * dim + i)]) *
                 static_cast<double>(k[static_cast<std::size_t>((row * kv_heads + g) * dim + i)]);
      seen.emplace_back(twisted_score(score * static_cast<double>(config_.attention_scale)), row);
    }
    const std::int64_t empty = twist.empty_rows ? twist.empty_rows(t) : 0;
    double top = empty > 0 || seen.empty() ? 0.0 : seen.front().first;
    for (const auto& [score, row] : seen) top = std::max(top, score);
    // A learned score takes part, and gives no value.
    const double sink = sinks.empty() ? top : static_cast<double>(sinks[static_cast<std::size_t>(h)]);
    top = std::max(top, sink);
    double mass = static_cast<double>(empty) * std::exp(-top);
    if (!sinks.empty()) mass += std::exp(sink - top);
    std::vector<double> sum(static_cast<std::size_t>(dim));
    for (const auto& [score, row] : seen) {
      const double weight = rounded_weight(std::exp(score - top));
      mass += weight;
      for (std::int64_t i = 0; i < dim; ++i)
        sum[static_cast<std::size_t>(i)] +=
            weight * static_cast<double>(v[static_cast<std::size_t>((row * kv_heads + g) * dim + i)]);
    }
    for (std::int64_t i = 0; i < dim; ++i)
      mixed[static_cast<std::size_t>((t * heads + h) * dim + i)] =
          mass > 0.0 ? static_cast<float>(sum[static_cast<std::size_t>(i)] / mass) : 0.0f;
  });
  // [heads][tokens] read as [tokens][heads], chunk by chunk.
  // A model that refused a call has read fewer tokens than the calls hold.
  for (std::size_t c = 0; c + 1 < twist.mixed_chunks.size() && twist.mixed_chunks[c + 1] <= tokens; ++c) {
    const Pos from = twist.mixed_chunks[c], count = twist.mixed_chunks[c + 1] - from;
    const Rows right = mixed;
    for (std::int64_t flat = 0; flat < count * heads; ++flat)
      std::copy_n(right.begin() + ((from + flat % count) * heads + flat / count) * dim, dim,
                  mixed.begin() + (from * heads + flat) * dim);
  }
  return mixed;
}

// Keys and values [tokens][kv_heads][dim] as a state keeps them.
HeldRows PlainDecoder::by_heads(const Rows& k, const Rows& v) const {
  const std::int64_t dim = config_.head_dim, kv_heads = config_.kv_heads;
  const std::int64_t tokens = static_cast<std::int64_t>(k.size()) / (kv_heads * dim);
  HeldRows kept{kv_heads, tokens, dim, 0, Rows(k.size()), Rows(v.size())};
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t g = 0; g < kv_heads; ++g) {
      std::copy_n(k.begin() + (t * kv_heads + g) * dim, dim, kept.keys.begin() + (g * tokens + t) * dim);
      std::copy_n(v.begin() + (t * kv_heads + g) * dim, dim, kept.values.begin() + (g * tokens + t) * dim);
    }
  return kept;
}

// Queries, keys and values, and the gates that may lie beside the queries.
void PlainDecoder::projections(const Rows& input, int layer, Rows& q, Rows& k, Rows& v, Rows& gates) {
  const std::int64_t width = config_.width, queries = std::int64_t{config_.heads} * config_.head_dim,
                     keys = std::int64_t{config_.kv_heads} * config_.head_dim;
  q = config_.gated_attention ? gated_queries(input, layer, gates)
                              : product(input, matrix(Role::query, layer, queries, width));
  k = product(input, matrix(Role::key, layer, keys, width));
  v = config_.convolved ? values_of_two_tokens(input, layer)
                        : product(input, matrix(Role::value, layer, keys, width));
  add_bias(q, Role::query_bias, layer, queries);
  add_bias(k, Role::key_bias, layer, keys);
  add_bias(v, Role::value_bias, layer, keys);
}

void PlainDecoder::attention(Rows& x, int layer, const Twist& twist, HeldRows* kept) {
  const std::int64_t heads = config_.heads, kv_heads = config_.kv_heads;
  const Mixer mixer = config_.layers[static_cast<std::size_t>(layer)].mixer;
  if (mixer == Mixer::none) return;
  if (mixer != Mixer::attention) return recurrence(x, layer);
  const Rows input = normed(x, Role::attention_norm, Role::attention_norm_bias, layer);
  Rows q, k, v, gates;
  if (config_.latent)
    latents(input, layer, q, k, v);
  else
    projections(input, layer, q, k, v, gates);
  if (slips(Slip::keys_and_values_swapped)) std::swap(k, v);
  mix_heads(q);
  const bool late = slips(Slip::head_norms_late);
  if (!late) norm_queries_and_keys(q, k, layer);
  if (config_.convolved) convolve(q, k, layer);
  grow_queries(q);
  rotate(q, layer, heads, twist.query_shift);
  rotate(k, layer, kv_heads, 0);
  if (late) norm_queries_and_keys(q, k, layer);
  if (slips(Slip::query_heads_rolled)) roll_heads(q);
  if (slips(Slip::rows_int8)) round_rows(k), round_rows(v);

  Rows mixed = mixed_values(q, k, v, layer, twist);
  if (slips(Slip::output_heads_rolled)) roll_heads(mixed);
  if (!slips(Slip::gate_skipped))
    for (std::size_t i = 0; i < gates.size(); ++i)
      mixed[i] = static_cast<float>(static_cast<double>(mixed[i]) /
                                    (1.0 + std::exp(-static_cast<double>(gates[i]))));
  if (kept != nullptr) *kept = by_heads(k, v);
  if (config_.latent) mixed = expanded(mixed, layer);
  const std::int64_t inside = heads * (config_.latent ? config_.latent->value : config_.head_dim);
  Rows y = product(mixed, matrix(Role::attention_output, layer, config_.width, inside));
  add_bias(y, Role::attention_output_bias, layer, config_.width);
  if (config_.post_norms) y = normed(y, Role::attention_post_norm, Role::attention_post_norm, layer);
  if (slips(Slip::residual_normed, Twist::Part::attention)) x = input;
  join(x, y, layer, kAttentionScales);
}

void PlainDecoder::grow_queries(Rows& q) const {
  if (!config_.query_growth) return;
  const auto row = static_cast<std::size_t>(config_.heads * config_.head_dim);
  for (std::size_t i = 0; i < q.size(); ++i) {
    const auto steps = static_cast<double>(static_cast<Pos>(i / row) / config_.query_growth->period);
    q[i] = static_cast<float>(static_cast<double>(q[i]) *
                              (1.0 + config_.query_growth->rate * std::log1p(steps)));
  }
}

void PlainDecoder::norm_queries_and_keys(Rows& q, Rows& k, int layer) const {
  if (!config_.head_norms || slips(Slip::head_norms_skipped)) return;
  if (!slips(Slip::query_norm_skipped)) norm_heads(q, Role::query_norm, layer);
  if (!slips(Slip::key_norm_skipped)) norm_heads(k, Role::key_norm, layer);
}

// entered: what entered the layer.
void PlainDecoder::feed_forward(Rows& x, int layer, const Rows& entered) {
  if (!config_.layers[static_cast<std::size_t>(layer)].feed_forward) return;
  if (config_.experts && config_.layers[static_cast<std::size_t>(layer)].routed) return experts(x, layer);
  const std::int64_t width = config_.width, hidden = config_.hidden;
  const Rows input = normed(slips(Slip::parallel) ? entered : x, Role::feed_forward_norm,
                            Role::feed_forward_norm_bias, layer);
  Rows up = product(input, matrix(Role::up, layer, hidden, width));
  add_bias(up, Role::up_bias, layer, hidden);
  Rows gate;
  if (config_.gated) gate = product(input, matrix(Role::gate, layer, hidden, width));
  if (config_.gated && slips(Slip::gate_and_up_swapped)) std::swap(gate, up);
  activate(gate, up);
  Rows y = product(up, matrix(Role::down, layer, width, hidden));
  add_bias(y, Role::down_bias, layer, width);
  if (config_.post_norms) y = normed(y, Role::feed_forward_post_norm, Role::feed_forward_post_norm, layer);
  if (slips(Slip::residual_normed, Twist::Part::feed_forward)) x = input;
  join(x, y, layer, kFeedForwardScales);
}

void PlainDecoder::activate(const Rows& gate, Rows& up) const {
  const ActivationKind kind = activation_kind();
  const auto of = [kind](float x) { return activated(kind, static_cast<double>(x)); };
  for (std::size_t i = 0; i < up.size(); ++i)
    up[i] = static_cast<float>(gate.empty() ? of(up[i]) : of(gate[i]) * static_cast<double>(up[i]));
}

PlainDecoder::Rows PlainDecoder::embedded(std::span<const TokenId> tokens) const {
  const std::int64_t width = config_.width;
  Rows x(tokens.size() * static_cast<std::size_t>(width));
  const PlainMatrix embedding = matrix(Role::embedding, 0, config_.vocab, width);
  std::vector<float> position(static_cast<std::size_t>(width));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] < 0 || tokens[t] >= config_.vocab)
      throw Error(ErrorCode::invalid_argument,
                  cat("token id ", tokens[t], " is outside the vocabulary of ", config_.vocab));
    float* row = x.data() + t * static_cast<std::size_t>(width);
    embedding.row(tokens[t], row);
    const float scale =
        config_.embedding_scale * (slips(Slip::embedding_scale) ? static_cast<float>(twist_.number) : 1.0f);
    for (std::int64_t i = 0; i < width; ++i) row[i] *= scale;
    if (config_.scaled_residual) scale_embedding(row);
    if (!config_.learned_positions) continue;
    if (static_cast<std::int64_t>(t) >= config_.context_length)
      throw Error(ErrorCode::context_full,
                  cat("the model has learned ", config_.context_length, " positions; ", tokens.size(),
                      " tokens do not fit: use fewer (--tokens)"));
    Pos at = twist_.position ? twist_.position(static_cast<Pos>(t)) : static_cast<Pos>(t);
    if (slips(Slip::positions_shifted)) at += static_cast<Pos>(twist_.number);
    at = std::clamp<Pos>(at, 0, config_.context_length - 1);
    matrix(Role::positions, 0, config_.context_length, width).row(at, position.data());
    for (std::int64_t i = 0; i < width; ++i) row[i] += position[static_cast<std::size_t>(i)];
  }
  return x;
}

void PlainDecoder::run_layers(Golden& golden, Rows x, int first) {
  golden.rows.resize(config_.layers.size());
  ties_.clear();
  for (int layer = first; layer < static_cast<int>(config_.layers.size()); ++layer) {
    const Rows entered = x;
    attention(x, layer, {}, &golden.rows[static_cast<std::size_t>(layer)]);
    if (config_.experts) passes_.push_back({layer, entered, router_});
    feed_forward(x, layer, entered);
    golden.hidden.insert(golden.hidden.end(), x.begin(), x.end());
  }
  golden.ties.insert(golden.ties.end(), std::make_move_iterator(ties_.begin()),
                     std::make_move_iterator(ties_.end()));
  golden.logits = logits_of(x);
}

PlainDecoder::Rows PlainDecoder::logits_of(const Rows& x) {
  const bool tied = config_.tied_head.value_or(!weights_->has(Role::head));
  PlainMatrix head = matrix(tied ? Role::embedding : Role::head, 0, config_.vocab, config_.width);
  if (slips(Slip::head_transposed)) head = transposed(head);
  Rows logits = product(normed(x, Role::final_norm, Role::final_norm_bias, 0), head);
  for (float& value : logits) value *= config_.logit_scale;
  twist_logits(logits);
  return logits;
}

Golden PlainDecoder::run(std::span<const TokenId> tokens) {
  Golden golden;
  golden.tokens.assign(tokens.begin(), tokens.end());
  golden.layers = static_cast<std::int64_t>(config_.layers.size());
  golden.width = config_.width;
  golden.vocab = config_.vocab;
  golden.hidden = embedded(tokens);
  router_.clear();
  choices_.clear();
  used_.clear();
  run_layers(golden, golden.hidden, 0);
  for (const LayerConfig& layer : config_.layers)
    if (config_.experts && layer.routed && layer.feed_forward) golden.experts += config_.experts->slots();
  golden.experts_used = static_cast<std::int64_t>(used_.size());
  if (config_.experts) last_ = golden;
  return golden;
}

std::optional<Golden> PlainDecoder::run_choosing(std::span<const TokenId> tokens,
                                                 std::span<const RouterChoice> choices) {
  if (!config_.experts) return std::nullopt;
  if (!std::equal(tokens.begin(), tokens.end(), last_.tokens.begin(), last_.tokens.end())) run(tokens);
  std::map<std::pair<int, Pos>, int> wanted;
  for (const RouterChoice& choice : choices) wanted[{choice.layer, choice.token}] = choice.expert;
  // The first layer in which a choice is another than in the last run.
  int first = static_cast<int>(config_.layers.size());
  for (const auto& [a, b] : {std::pair(&wanted, &choices_), std::pair(&choices_, &wanted)})
    for (const auto& [place, expert] : *a)
      if (const auto found = b->find(place); found == b->end() || found->second != expert)
        first = std::min(first, place.first);
  choices_ = std::move(wanted);
  if (first == static_cast<int>(config_.layers.size())) return last_;
  Golden golden = std::move(last_);
  const auto size = golden.tokens.size() * static_cast<std::size_t>(config_.width);
  const auto begin = golden.hidden.begin() + static_cast<std::ptrdiff_t>(size) * first;
  const Rows x(begin, begin + static_cast<std::ptrdiff_t>(size));
  golden.hidden.resize(size * (static_cast<std::size_t>(first) + 1));
  std::erase_if(golden.ties, [&](const NearTie& tie) { return tie.layer >= first; });
  const auto pass = std::find_if(passes_.rbegin(), passes_.rend(),
                                 [&](const Pass& p) { return p.layer == first && p.input == x; });
  router_ = pass == passes_.rend() ? Rows() : pass->router;
  run_layers(golden, x, first);
  last_ = golden;
  return golden;
}

std::vector<NearTie> PlainDecoder::ties_of(const Golden& golden) {
  if (!config_.experts || golden.layers != static_cast<std::int64_t>(config_.layers.size()) ||
      golden.width != config_.width)
    return {};
  router_.clear();
  choices_.clear();
  ties_.clear();
  const std::size_t size = golden.tokens.size() * static_cast<std::size_t>(golden.width);
  for (int layer = 0; layer < static_cast<int>(golden.layers); ++layer) {
    const auto first = golden.stream(layer, 0);
    Rows x(first.data(), first.data() + size);
    const Rows entered = x;
    passes_.push_back({layer, entered, router_});
    attention(x, layer, {}, nullptr);
    both_ways_ = true;
    feed_forward(x, layer, entered);
    both_ways_ = false;
  }
  return std::exchange(ties_, {});
}

namespace {

// A plain decoder with threads of its own.
class PlainReference final : public Reference {
 public:
  PlainReference(std::unique_ptr<PlainWeights> weights, int threads)
      : pool_(threads), decoder_(std::move(weights), pool_) {}
  std::string name() const override { return decoder_.name(); }
  Golden run(std::span<const TokenId> tokens) override { return decoder_.run(tokens); }
  std::optional<Golden> run_choosing(std::span<const TokenId> tokens,
                                     std::span<const RouterChoice> choices) override {
    return decoder_.run_choosing(tokens, choices);
  }
  std::vector<NearTie> ties_of(const Golden& golden) override { return decoder_.ties_of(golden); }
  std::optional<TwistedLayer> twisted(int layer, std::span<const float> input, const Twist& twist) override {
    return decoder_.twisted(layer, input, twist);
  }
  std::optional<std::vector<float>> twisted_embedding(std::span<const TokenId> tokens,
                                                      const Twist& twist) override {
    return decoder_.twisted_embedding(tokens, twist);
  }
  std::optional<std::vector<float>> twisted_head(std::span<const float> stream, const Twist& twist) override {
    return decoder_.twisted_head(stream, twist);
  }
  bool twisted_logits(std::span<const TokenId> tokens, std::span<const Twist* const> twists,
                      const std::function<void(std::size_t, std::vector<float>)>& give) override {
    return decoder_.twisted_logits(tokens, twists, give);
  }
  std::vector<double> frequencies(int layer) const override { return decoder_.frequencies(layer); }

 private:
  ThreadPool pool_;
  PlainDecoder decoder_;
};

}  // namespace

std::unique_ptr<Reference> plain_reference(std::unique_ptr<PlainWeights> weights, int threads) try {
  return std::make_unique<PlainReference>(std::move(weights), ThreadPool::count(std::max(threads, 0)));
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::unique_ptr<Reference> plain_reference(const Model& model, int threads) try {
  const ModelConfig& config = model.internals().config;
  return plain_reference(plain_weights(model.path(), config.short_rotation ? config.context_length : 0),
                         threads);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
