#include "validate/plain_decoder.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "kernels/codec.h"

namespace kvtide {
namespace {

constexpr std::int64_t kTile = 8;  // tokens that share one pass over a weight row

double silu(double x) { return x / (1.0 + std::exp(-x)); }
double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

}  // namespace

PlainDecoder::PlainDecoder(std::unique_ptr<PlainWeights> weights, ThreadPool& pool)
    : weights_(std::move(weights)), config_(weights_->config()), pool_(pool) {}

PlainDecoder::PlainDecoder(const std::string& path, ThreadPool& pool)
    : PlainDecoder(plain_weights(path), pool) {}

PlainMatrix PlainDecoder::matrix(Role role, int layer, std::int64_t rows, std::int64_t columns) const {
  return weights_->matrix(role, layer, rows, columns, {});
}

std::vector<float> PlainDecoder::vector(Role role, int layer, std::int64_t n) const {
  return weights_->vector(role, layer, n);
}

PlainDecoder::Rows PlainDecoder::product(const Rows& x, const PlainMatrix& m) {
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / m.columns;
  const std::int64_t tiles = (tokens + kTile - 1) / kTile;
  // [tile][column][token of the tile], so that the sums of a tile run side by side.
  std::vector<double> columns(static_cast<std::size_t>(tiles * m.columns * kTile));
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t k = 0; k < m.columns; ++k)
      columns[static_cast<std::size_t>((t / kTile * m.columns + k) * kTile + t % kTile)] =
          static_cast<double>(x[static_cast<std::size_t>(t * m.columns + k)]);
  Rows y(static_cast<std::size_t>(tokens * m.rows));
  constexpr std::int64_t kRun = 16;  // weight rows of one piece of work
  pool_.run((m.rows + kRun - 1) / kRun, [&](std::int64_t run) {
    std::vector<float> weights(static_cast<std::size_t>(m.columns));
    for (std::int64_t r = run * kRun; r < std::min(m.rows, (run + 1) * kRun); ++r) {
      m.row(r, weights.data());
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        double sums[kTile] = {};
        const double* column = columns.data() + tile * m.columns * kTile;
        for (const float weight : weights) {
          const auto w = static_cast<double>(weight);
          for (std::int64_t i = 0; i < kTile; ++i) sums[i] += w * column[i];
          column += kTile;
        }
        for (std::int64_t i = 0; i < std::min(kTile, tokens - tile * kTile); ++i)
          y[static_cast<std::size_t>((tile * kTile + i) * m.rows + r)] = static_cast<float>(sums[i]);
      }
    }
  });
  return y;
}

PlainDecoder::Rows PlainDecoder::normed(const Rows& x, Role weight, Role bias, int layer) const {
  const std::int64_t n = config_.width;
  const auto w = vector(weight, layer, n);
  const auto b = config_.norm == NormKind::layer ? vector(bias, layer, n) : std::vector<float>();
  Rows y(x.size());
  for (std::size_t start = 0; start < x.size(); start += static_cast<std::size_t>(n)) {
    double mean = 0.0, square = 0.0;
    const auto row = std::span(x).subspan(start, static_cast<std::size_t>(n));
    if (config_.norm == NormKind::layer) {
      for (const float value : row) mean += static_cast<double>(value);
      mean /= static_cast<double>(n);
    }
    for (const float value : row)
      square += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
    const double scale =
        1.0 / std::sqrt(square / static_cast<double>(n) + static_cast<double>(config_.norm_epsilon));
    for (std::size_t i = 0; i < row.size(); ++i)
      y[start + i] =
          static_cast<float>((static_cast<double>(row[i]) - mean) * scale * static_cast<double>(w[i]) +
                             (b.empty() ? 0.0 : static_cast<double>(b[i])));
  }
  return y;
}

void PlainDecoder::add_bias(Rows& y, Role role, int layer, std::int64_t n) const {
  const auto bias = vector(role, layer, n);
  if (bias.empty()) return;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
}

void PlainDecoder::norm_heads(Rows& y, Role role, int layer) const {
  const auto dim = static_cast<std::size_t>(config_.head_dim);
  const auto w = vector(role, layer, config_.head_dim);
  for (std::size_t start = 0; start < y.size(); start += dim) {
    double square = 0.0;
    for (std::size_t i = 0; i < dim; ++i)
      square += static_cast<double>(y[start + i]) * static_cast<double>(y[start + i]);
    const double scale =
        1.0 / std::sqrt(square / static_cast<double>(dim) + static_cast<double>(config_.norm_epsilon));
    for (std::size_t i = 0; i < dim; ++i)
      y[start + i] =
          static_cast<float>(static_cast<double>(y[start + i]) * scale * static_cast<double>(w[i]));
  }
}

std::vector<double> PlainDecoder::frequencies(int layer) const { return weights_->frequencies(layer); }

// Rows come out with pairs (i, i + pairs), however the checkpoint orders them.
void PlainDecoder::rotate(Rows& y, int layer, std::int64_t heads, std::int64_t shift) const {
  const auto angles = frequencies(layer);
  const std::size_t dim = static_cast<std::size_t>(config_.head_dim), pairs = angles.size();
  if (pairs == 0) return;
  const double magnitude = weights_->magnitude(layer);
  std::vector<float> old(dim);
  for (std::size_t start = 0; start < y.size(); start += dim) {
    const auto token = static_cast<Pos>(start / (static_cast<std::size_t>(heads) * dim));
    std::copy_n(y.begin() + static_cast<std::ptrdiff_t>(start), dim, old.begin());
    for (std::size_t i = 0; i < pairs; ++i) {
      const double a = static_cast<double>(old[config_.rope_interleaved ? 2 * i : i]);
      const double b = static_cast<double>(old[config_.rope_interleaved ? 2 * i + 1 : i + pairs]);
      const double angle = static_cast<double>(token + shift) * angles[i];
      y[start + i] = static_cast<float>((a * std::cos(angle) - b * std::sin(angle)) * magnitude);
      y[start + i + pairs] = static_cast<float>((a * std::sin(angle) + b * std::cos(angle)) * magnitude);
    }
  }
}

// [tokens][heads * dim]: for every query the values of the rows that it sees, weighed by the softmax.
PlainDecoder::Rows PlainDecoder::mixed_values(const Rows& q, const Rows& k, const Rows& v, int layer,
                                              const Twist& twist) {
  const std::int64_t dim = config_.head_dim, heads = config_.heads, kv_heads = config_.kv_heads;
  const std::int64_t tokens = static_cast<std::int64_t>(q.size()) / (heads * dim);
  const auto window = config_.layers[static_cast<std::size_t>(layer)].window;
  Rows mixed(static_cast<std::size_t>(tokens * heads * dim));
  pool_.run(tokens * heads, [&](std::int64_t item) {
    const std::int64_t t = item / heads, h = item % heads, g = h / (heads / kv_heads);
    std::vector<std::pair<double, std::int64_t>> seen;  // score, row
    for (std::int64_t row = 0; row < tokens; ++row) {
      const bool usual = row <= t && (!window || row > t - *window);
      if (!(twist.visible ? twist.visible(t, row) : usual)) continue;
      double score = 0.0;
      for (std::int64_t i = 0; i < dim; ++i)
        score += static_cast<double>(q[static_cast<std::size_t>((t * heads + h) * dim + i)]) *
                 static_cast<double>(k[static_cast<std::size_t>((row * kv_heads + g) * dim + i)]);
      seen.emplace_back(score * static_cast<double>(config_.attention_scale), row);
    }
    const std::int64_t empty = twist.empty_rows ? twist.empty_rows(t) : 0;
    double top = empty > 0 || seen.empty() ? 0.0 : seen.front().first;
    for (const auto& [score, row] : seen) top = std::max(top, score);
    double mass = static_cast<double>(empty) * std::exp(-top);
    std::vector<double> sum(static_cast<std::size_t>(dim));
    for (const auto& [score, row] : seen) {
      const double weight = std::exp(score - top);
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
  for (std::size_t c = 0; c + 1 < twist.mixed_chunks.size(); ++c) {
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

void PlainDecoder::attention(Rows& x, int layer, const Twist& twist, HeldRows* kept) {
  const std::int64_t width = config_.width, dim = config_.head_dim, heads = config_.heads,
                     kv_heads = config_.kv_heads;
  const Rows input = normed(x, Role::attention_norm, Role::attention_norm_bias, layer);
  Rows q = product(input, matrix(Role::query, layer, heads * dim, width));
  Rows k = product(input, matrix(Role::key, layer, kv_heads * dim, width));
  Rows v = config_.convolved ? values_of_two_tokens(input, layer)
                             : product(input, matrix(Role::value, layer, kv_heads * dim, width));
  add_bias(q, Role::query_bias, layer, heads * dim);
  add_bias(k, Role::key_bias, layer, kv_heads * dim);
  add_bias(v, Role::value_bias, layer, kv_heads * dim);
  if (config_.head_norms) {
    norm_heads(q, Role::query_norm, layer);
    norm_heads(k, Role::key_norm, layer);
  }
  if (config_.convolved) convolve(q, k, layer);
  rotate(q, layer, heads, twist.query_shift);
  rotate(k, layer, kv_heads, 0);

  Rows mixed = mixed_values(q, k, v, layer, twist);
  if (kept != nullptr) *kept = by_heads(k, v);
  Rows y = product(mixed, matrix(Role::attention_output, layer, width, heads * dim));
  add_bias(y, Role::attention_output_bias, layer, width);
  if (config_.post_norms) y = normed(y, Role::attention_post_norm, Role::attention_post_norm, layer);
  join(x, y, layer, kAttentionScales);
}

void PlainDecoder::feed_forward(Rows& x, int layer) {
  if (config_.experts) return experts(x, layer);
  const std::int64_t width = config_.width, hidden = config_.hidden;
  const Rows input = normed(x, Role::feed_forward_norm, Role::feed_forward_norm_bias, layer);
  Rows up = product(input, matrix(Role::up, layer, hidden, width));
  add_bias(up, Role::up_bias, layer, hidden);
  const auto act = config_.activation == Activation::silu ? silu : gelu;
  if (config_.gated) {
    const Rows gate = product(input, matrix(Role::gate, layer, hidden, width));
    for (std::size_t i = 0; i < up.size(); ++i)
      up[i] = static_cast<float>(act(static_cast<double>(gate[i])) * static_cast<double>(up[i]));
  } else {
    for (float& value : up) value = static_cast<float>(act(static_cast<double>(value)));
  }
  Rows y = product(up, matrix(Role::down, layer, width, hidden));
  add_bias(y, Role::down_bias, layer, width);
  if (config_.post_norms) y = normed(y, Role::feed_forward_post_norm, Role::feed_forward_post_norm, layer);
  join(x, y, layer, kFeedForwardScales);
}

Golden PlainDecoder::run(std::span<const TokenId> tokens) {
  const std::int64_t width = config_.width;
  Golden golden;
  golden.tokens.assign(tokens.begin(), tokens.end());
  golden.layers = static_cast<std::int64_t>(config_.layers.size());
  golden.width = width;
  golden.vocab = config_.vocab;
  Rows x(tokens.size() * static_cast<std::size_t>(width));
  const PlainMatrix embedding = matrix(Role::embedding, 0, config_.vocab, width);
  std::vector<float> position(static_cast<std::size_t>(width));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] < 0 || tokens[t] >= config_.vocab)
      throw Error(ErrorCode::invalid_argument,
                  cat("token id ", tokens[t], " is outside the vocabulary of ", config_.vocab));
    float* row = x.data() + t * static_cast<std::size_t>(width);
    embedding.row(tokens[t], row);
    for (std::int64_t i = 0; i < width; ++i) row[i] *= config_.embedding_scale;
    if (config_.scaled_residual) scale_embedding(row);
    if (!config_.learned_positions) continue;
    if (static_cast<std::int64_t>(t) >= config_.context_length)
      throw Error(ErrorCode::context_full,
                  cat("the model has learned ", config_.context_length, " positions; ", tokens.size(),
                      " tokens do not fit: use fewer (--tokens)"));
    matrix(Role::positions, 0, config_.context_length, width).row(static_cast<Pos>(t), position.data());
    for (std::int64_t i = 0; i < width; ++i) row[i] += position[static_cast<std::size_t>(i)];
  }
  golden.rows.resize(config_.layers.size());
  golden.hidden = x;
  router_.clear();
  ties_.clear();
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
    attention(x, layer, {}, &golden.rows[static_cast<std::size_t>(layer)]);
    if (config_.experts)
      passes_.push_back(
          {layer, Rows(golden.hidden.end() - static_cast<std::ptrdiff_t>(x.size()), golden.hidden.end()),
           router_});
    feed_forward(x, layer);
    golden.hidden.insert(golden.hidden.end(), x.begin(), x.end());
  }
  golden.ties = std::move(ties_);
  const bool tied = config_.tied_head.value_or(!weights_->has(Role::head));
  golden.logits = product(normed(x, Role::final_norm, Role::final_norm_bias, 0),
                          matrix(tied ? Role::embedding : Role::head, 0, config_.vocab, width));
  return golden;
}

std::optional<std::vector<float>> PlainDecoder::twisted(int layer, std::span<const float> input,
                                                        const Twist& twist) {
  Rows x(input.begin(), input.end());
  if (config_.experts) {
    // What the router of the layer before had of these very inputs.
    const auto pass = std::find_if(passes_.begin(), passes_.end(),
                                   [&](const Pass& p) { return p.layer == layer && p.input == x; });
    if (pass == passes_.end()) return std::nullopt;
    router_ = pass->router;
  }
  attention(x, layer, twist, nullptr);
  feed_forward(x, layer);
  return x;
}

namespace {

// A plain decoder with threads of its own.
class PlainReference final : public Reference {
 public:
  PlainReference(std::unique_ptr<PlainWeights> weights, int threads)
      : pool_(threads), decoder_(std::move(weights), pool_) {}
  std::string name() const override { return decoder_.name(); }
  Golden run(std::span<const TokenId> tokens) override { return decoder_.run(tokens); }
  std::optional<std::vector<float>> twisted(int layer, std::span<const float> input,
                                            const Twist& twist) override {
    return decoder_.twisted(layer, input, twist);
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
  return plain_reference(plain_weights(model.path()), threads);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
