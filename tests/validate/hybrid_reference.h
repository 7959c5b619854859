// hybrid_reference.h: a small made-up model with everything that goes wrong in ports: partial rotation, keys
// that go through a causal convolution, a value head that is one token late; and the right answer for it.
//
// The reference reads the whole text at once, in double. It shares its weights with the model under test
// (hybrid_shards.h) and no code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvtide/validate.h"
#include "tests/kernels/samples.h"

namespace kvtide::testing {

inline constexpr std::int64_t kWidth = 32, kHeads = 4, kKvHeads = 2, kDim = 8, kPairs = 2, kHidden = 40,
                              kVocab = 48;
inline constexpr std::int64_t kMixed = (kHeads + kKvHeads) * kDim;  // channels of the convolution

// [rows][columns]
struct Weight {
  std::int64_t rows, columns;
  std::vector<float> w;
  float at(std::int64_t r, std::int64_t c) const { return w[static_cast<std::size_t>(r * columns + c)]; }
};

struct HybridLayer {
  Weight query{kHeads * kDim, kWidth, {}}, key{kKvHeads * kDim, kWidth, {}};
  Weight value_now{kDim, kWidth, {}}, value_late{kDim, kWidth, {}};  // value heads 0 and 1
  Weight taps{kMixed, 3, {}};                                        // of the convolution, oldest first
  Weight output{kWidth, kHeads*kDim, {}}, up{kHidden, kWidth, {}}, down{kWidth, kHidden, {}};
};

struct HybridWeights {
  std::vector<HybridLayer> layers;
  Weight embedding{kVocab, kWidth, {}};

  // spread: the largest factor by which channels of the values differ; 1: alike.
  explicit HybridWeights(int count, std::uint64_t seed, float spread = 40.0f) {
    Rng rng(seed);
    const auto fill = [&](Weight& m, float scale) {
      m.w.resize(static_cast<std::size_t>(m.rows * m.columns));
      for (float& x : m.w)
        x = scale * static_cast<float>(rng.normal()) / std::sqrt(static_cast<float>(m.columns));
    };
    fill(embedding, 6.0f);
    for (int l = 0; l < count; ++l) {
      HybridLayer& layer = layers.emplace_back();
      for (Weight* m : {&layer.query, &layer.key, &layer.value_now, &layer.value_late, &layer.taps,
                        &layer.output, &layer.up, &layer.down})
        fill(*m, 1.0f);
      // Small channels of the values count as much as large ones: the output projection makes up for them.
      const auto size = [&](std::int64_t channel) {
        return std::pow(spread, static_cast<float>(channel) / static_cast<float>(kDim - 1)) /
               std::sqrt(spread);
      };
      for (Weight* m : {&layer.value_now, &layer.value_late})
        for (std::int64_t r = 0; r < m->rows; ++r)
          for (std::int64_t c = 0; c < m->columns; ++c)
            m->w[static_cast<std::size_t>(r * m->columns + c)] *= size(r);
      for (std::size_t i = 0; i < layer.output.w.size(); ++i)
        layer.output.w[i] /= size(static_cast<std::int64_t>(i) % kDim);
    }
  }
};

class HybridReference final : public Reference {
 public:
  explicit HybridReference(const HybridWeights& weights) : weights_(weights) {}
  std::string name() const override { return "the hybrid, in one piece"; }
  std::vector<double> frequencies(int) const override { return {1.0, 0.01}; }

  Golden run(std::span<const TokenId> tokens) override {
    Golden golden;
    golden.tokens.assign(tokens.begin(), tokens.end());
    golden.layers = static_cast<std::int64_t>(weights_.layers.size());
    golden.width = kWidth;
    golden.vocab = kVocab;
    Table x;
    for (const TokenId token : tokens) {
      auto& row = x.emplace_back();
      for (std::int64_t i = 0; i < kWidth; ++i) row.push_back(weights_.embedding.at(token, i));
    }
    keep(golden.hidden, x);
    for (const HybridLayer& layer : weights_.layers) {
      x = pass(layer, x, {}, &golden.rows.emplace_back());
      keep(golden.hidden, x);
    }
    keep(golden.logits, times(weights_.embedding, normed(x)));
    return golden;
  }
  std::optional<TwistedLayer> twisted(int layer, std::span<const float> input, const Twist& twist) override {
    Table x;
    for (std::size_t at = 0; at < input.size(); at += kWidth)
      x.emplace_back(input.begin() + static_cast<std::ptrdiff_t>(at),
                     input.begin() + static_cast<std::ptrdiff_t>(at) + kWidth);
    TwistedLayer out;
    keep(out.stream, pass(weights_.layers[static_cast<std::size_t>(layer)], x, twist, nullptr));
    return out;
  }

 private:
  using Table = std::vector<std::vector<double>>;  // [token][channel]
  static void keep(std::vector<float>& out, const Table& x) {
    for (const auto& row : x)
      for (const double value : row) out.push_back(static_cast<float>(value));
  }
  static Table times(const Weight& m, const Table& x) {
    Table y;
    for (const auto& row : x) {
      auto& out = y.emplace_back();
      for (std::int64_t r = 0; r < m.rows; ++r) {
        double sum = 0.0;
        for (std::int64_t c = 0; c < m.columns; ++c)
          sum += static_cast<double>(m.at(r, c)) * row[static_cast<std::size_t>(c)];
        out.push_back(sum);
      }
    }
    return y;
  }
  static Table normed(Table x) {
    for (auto& row : x) {
      double square = 0.0;
      for (const double value : row) square += value * value;
      for (double& value : row) value /= std::sqrt(square / static_cast<double>(row.size()) + 1e-6);
    }
    return x;
  }
  static void turn(double* head, double position) {
    const double frequency[] = {1.0, 0.01};
    for (std::int64_t i = 0; i < kPairs; ++i) {
      const double a = head[i], b = head[i + kPairs], angle = position * frequency[i];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + kPairs] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  static Table pass(const HybridLayer& w, const Table& x, const Twist& twist, HeldRows* rows) {
    const auto tokens = static_cast<std::int64_t>(x.size());
    const Table in = normed(x), q0 = times(w.query, in), k0 = times(w.key, in), now = times(w.value_now, in),
                late = times(w.value_late, in);
    Table mixed(x.size());  // queries and keys after the convolution, unrotated
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t c = 0; c < kMixed; ++c) {
        const auto before = [&](std::int64_t back) {
          if (t < back) return 0.0;
          const auto at = static_cast<std::size_t>(t - back);
          return c < kHeads * kDim ? q0[at][static_cast<std::size_t>(c)]
                                   : k0[at][static_cast<std::size_t>(c - kHeads * kDim)];
        };
        double sum = before(0);
        for (std::int64_t tap = 0; tap < 3; ++tap)
          sum += static_cast<double>(w.taps.at(c, tap)) * before(2 - tap);
        mixed[static_cast<std::size_t>(t)].push_back(sum);
      }
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t h = 0; h < kHeads + kKvHeads; ++h)
        turn(mixed[static_cast<std::size_t>(t)].data() + h * kDim,
             static_cast<double>(t + (h < kHeads ? twist.query_shift : 0)));
    const auto value = [&](std::int64_t t, std::int64_t g, std::int64_t i) {
      if (g == 0) return now[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)];
      return t == 0 ? 0.0 : late[static_cast<std::size_t>(t - 1)][static_cast<std::size_t>(i)];
    };
    Table attended(x.size(), std::vector<double>(kHeads * kDim));
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t h = 0; h < kHeads; ++h) {
        double mass = twist.empty_rows ? static_cast<double>(twist.empty_rows(t)) : 0.0;
        const std::int64_t g = h / (kHeads / kKvHeads);
        for (std::int64_t row = 0; row < tokens; ++row) {
          if (!(twist.visible ? twist.visible(t, row, row <= t) : row <= t)) continue;
          double score = 0.0;
          for (std::int64_t i = 0; i < kDim; ++i)
            score += mixed[static_cast<std::size_t>(t)][static_cast<std::size_t>(h * kDim + i)] *
                     mixed[static_cast<std::size_t>(row)][static_cast<std::size_t>((kHeads + g) * kDim + i)];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(kDim)));
          mass += weight;
          for (std::int64_t i = 0; i < kDim; ++i)
            attended[static_cast<std::size_t>(t)][static_cast<std::size_t>(h * kDim + i)] +=
                weight * value(row, g, i);
        }
        for (std::int64_t i = 0; i < kDim; ++i)
          attended[static_cast<std::size_t>(t)][static_cast<std::size_t>(h * kDim + i)] /= mass;
      }
    for (std::size_t c = 0; c + 1 < twist.mixed_chunks.size(); ++c) {
      const Table right = attended;
      const std::int64_t from = twist.mixed_chunks[c], count = twist.mixed_chunks[c + 1] - from;
      for (std::int64_t t = 0; t < count; ++t)
        for (std::int64_t h = 0; h < kHeads; ++h)
          for (std::int64_t i = 0; i < kDim; ++i)
            attended[static_cast<std::size_t>(from + t)][static_cast<std::size_t>(h * kDim + i)] =
                right[static_cast<std::size_t>(from + (t * kHeads + h) % count)]
                     [static_cast<std::size_t>((t * kHeads + h) / count * kDim + i)];
    }
    if (rows != nullptr) {
      *rows = {kKvHeads, tokens, kDim, 0, {}, {}};
      for (std::int64_t g = 0; g < kKvHeads; ++g)
        for (std::int64_t t = 0; t < tokens; ++t)
          for (std::int64_t i = 0; i < kDim; ++i) {
            rows->keys.push_back(static_cast<float>(
                mixed[static_cast<std::size_t>(t)][static_cast<std::size_t>((kHeads + g) * kDim + i)]));
            rows->values.push_back(static_cast<float>(value(t, g, i)));
          }
    }
    Table y = x;
    const auto add = [&](const Table& more) {
      for (std::size_t t = 0; t < y.size(); ++t)
        for (std::size_t i = 0; i < y[t].size(); ++i) y[t][i] += more[t][i];
    };
    add(times(w.output, attended));
    Table up = times(w.up, normed(y));
    for (auto& row : up)
      for (double& v : row) v = v / (1.0 + std::exp(-v));
    add(times(w.down, up));
    return y;
  }

  const HybridWeights& weights_;
};

}  // namespace kvtide::testing
