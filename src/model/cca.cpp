#include "model/cca.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/as_size.h"
#include "base/text.h"
#include "model/for_rows.h"
#include "tensor/panel.h"

namespace kvtide {
namespace {

constexpr std::int64_t kRowsPerTile = 32;  // of a head's convolution

std::size_t conv_tensor(int layer) { return 2 * static_cast<std::size_t>(layer); }
std::size_t value_tensor(int layer) { return conv_tensor(layer) + 1; }

// One call for one layer.
class Mixing {
 public:
  Mixing(const ModelConfig& config, const CcaWeights& weights, const Kernels& kernels, ThreadPool& pool,
         const CcaCall& call, const CcaScratch& scratch, const CcaRows& rows)
      : s_(config),
        config_(config),
        w_(weights),
        kernels_(kernels),
        pool_(pool),
        scratch_(scratch),
        rows_(rows),
        call_(call),
        count_(call.tokens) {}

  void run() {
    gather();
    hand_on();
    delay_values();
    for_rows(pool_, 0, count_, [&](std::int64_t t) { depthwise(t); });
    depthwise(-1);
    grouped();
    for_rows(pool_, 0, count_, [&](std::int64_t t) { mix_and_norm(t); });
  }

 private:
  float* u(std::int64_t t) const { return scratch_.u + (t + 2) * s_.channels; }
  float* d(std::int64_t t) const { return scratch_.d + (t + 1) * s_.channels; }
  float* delayed(std::int64_t t) const { return rows_.v + t * s_.kv_width + s_.kv_width / 2; }

  void gather() {
    for (std::int64_t c = 0; c < s_.channels; ++c) {
      u(-2)[c] = call_.conv_state[as_size(2 * c)];
      u(-1)[c] = call_.conv_state[as_size(2 * c + 1)];
    }
    for_rows(pool_, 0, count_, [&](std::int64_t t) {
      std::memcpy(u(t), rows_.q + t * s_.q_width, as_size(s_.q_width) * sizeof(float));
      std::memcpy(u(t) + s_.q_width, rows_.k + t * s_.kv_width, as_size(s_.kv_width) * sizeof(float));
    });
  }

  // The values after each of the newest tokens, so that they can be taken back.
  void hand_on() const {
    std::vector<float> taps(as_size(2 * s_.channels));
    for (std::int64_t t = call_.first_carried; t < count_; ++t) {
      for (std::int64_t c = 0; c < s_.channels; ++c) {
        taps[as_size(2 * c)] = u(t - 1)[c];
        taps[as_size(2 * c + 1)] = u(t)[c];
      }
      call_.carry(t, taps, {delayed(t), as_size(s_.kv_width / 2)});
    }
  }

  void delay_values() const {
    const std::size_t bytes = as_size(s_.kv_width / 2) * sizeof(float);
    for (std::int64_t t = count_ - 1; t > 0; --t) std::memcpy(delayed(t), delayed(t - 1), bytes);
    std::memcpy(delayed(0), call_.prev_value.data(), bytes);
  }

  void depthwise(std::int64_t t) const {
    const float *older = u(t - 1), *newer = u(t);
    float* out = d(t);
    for (std::int64_t c = 0; c < s_.channels; ++c)
      out[c] =
          w_.older[as_size(c)] * older[c] + w_.newer[as_size(c)] * newer[c] + w_.depthwise_bias[as_size(c)];
  }

  // Head by head a matrix product over both taps, the older first; outputs go where the projections were.
  void grouped() const {
    const std::int64_t tiles = (count_ + kRowsPerTile - 1) / kRowsPerTile, panels = s_.heads * s_.panels;
    pool_.run(panels * tiles, [&](std::int64_t item) {
      const std::int64_t panel = item % panels, head = panel / s_.panels;
      const std::int64_t first = item / panels * kRowsPerTile;
      const std::int64_t rows = std::min(kRowsPerTile, count_ - first);
      const std::int64_t column = panel % s_.panels * kPanelRows;
      const std::int64_t columns = std::min<std::int64_t>(kPanelRows, s_.head_dim - column);
      const float* bias = w_.grouped_bias.data() + head * s_.head_dim + column;
      alignas(64) float sums[kRowsPerTile * kPanelRows] = {};
      for (std::int64_t row = 0; row < rows; ++row)
        std::memcpy(sums + row * kPanelRows, bias, as_size(columns) * sizeof(float));
      const float* taps = w_.grouped.data() + panel * s_.panel_floats();
      for (int tap = 0; tap < 2; ++tap)
        kernels_.matmul.gemm(taps + tap * s_.head_dim * kPanelRows, s_.head_dim,
                             d(first - 1 + tap) + head * s_.head_dim, s_.channels, rows, sums, kPanelRows);
      for (std::int64_t row = 0; row < rows; ++row)
        std::memcpy(output(first + row, head) + column, sums + row * kPanelRows,
                    as_size(columns) * sizeof(float));
    });
  }

  // Query heads first, then key heads.
  float* output(std::int64_t t, std::int64_t head) const {
    return head < config_.heads ? rows_.q + t * s_.q_width + head * s_.head_dim
                                : rows_.k + t * s_.kv_width + (head - config_.heads) * s_.head_dim;
  }

  void mix_and_norm(std::int64_t t) const {
    const std::int64_t group = config_.heads / config_.kv_heads;
    // The norm is over sqrt(|x|^2 + epsilon^2): zeros stay zeros.
    constexpr float kEpsilon = std::numeric_limits<float>::epsilon();
    const float epsilon = kEpsilon * kEpsilon / static_cast<float>(s_.head_dim);
    for (std::int64_t g = 0; g < config_.kv_heads; ++g) {
      const float* key = u(t) + s_.q_width + g * s_.head_dim;
      const float* queries = u(t) + g * group * s_.head_dim;
      float* k = output(t, config_.heads + g);
      for (std::int64_t i = 0; i < s_.head_dim; ++i) {
        float sum = 0.0f;
        for (std::int64_t j = 0; j < group; ++j) {
          const float mean = (queries[j * s_.head_dim + i] + key[i]) * 0.5f;
          output(t, g * group + j)[i] += mean;
          sum += mean;
        }
        k[i] += sum / static_cast<float>(group);
      }
      const auto norm = [&](float* head, const float* gain) {
        kernels_.elementwise.rms_norm(head, gain, s_.head_dim, epsilon, head);
      };
      for (std::int64_t j = 0; j < group; ++j) norm(output(t, g * group + j), w_.query_gain.data());
      norm(k, w_.key_gain.data() + g * s_.head_dim);
    }
  }

  CcaSizes s_;
  const ModelConfig& config_;
  const CcaWeights& w_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  CcaScratch scratch_;
  CcaRows rows_;
  const CcaCall& call_;
  std::int64_t count_;
};

}  // namespace

std::vector<RecurrentSpec> cca_tensors(const ModelConfig& config) {
  std::vector<RecurrentSpec> specs;
  const CcaSizes s(config);
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    specs.push_back({cat("layers.", layer, ".conv_state"), DType::f32, {s.channels, 2}});
    specs.push_back({cat("layers.", layer, ".prev_value"), DType::f32, {s.kv_width / 2}});
  }
  return specs;
}

void mix_cca(const ModelConfig& config, const CcaWeights& weights, const Kernels& kernels, ThreadPool& pool,
             const CcaCall& call, const CcaScratch& scratch, const CcaRows& rows) {
  Mixing(config, weights, kernels, pool, call, scratch, rows).run();
}

void mix_cca(const ModelConfig& config, const CcaWeights& weights, const Kernels& kernels, ThreadPool& pool,
             KvState::Step& step, int layer, const CcaScratch& scratch, const CcaRows& rows) {
  const auto carried = [&](std::size_t tensor) {
    const auto bytes = step.state().recurrent().value(tensor);
    return std::span(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
  };
  const auto carry = [&](std::int64_t t, std::span<const float> taps, std::span<const float> value) {
    step.carry(conv_tensor(layer), t, std::as_bytes(taps));
    step.carry(value_tensor(layer), t, std::as_bytes(value));
  };
  mix_cca(config, weights, kernels, pool,
          CcaCall{step.tokens(), carried(conv_tensor(layer)), carried(value_tensor(layer)),
                  step.first_carried(), carry},
          scratch, rows);
}

}  // namespace kvtide
