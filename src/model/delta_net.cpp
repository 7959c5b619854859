#include "model/delta_net.h"

#include <algorithm>
#include <cmath>

#include "base/as_size.h"
#include "base/text.h"
#include "model/channel_conv.h"
#include "model/for_rows.h"
#include "model/gates.h"
#include "model/head_matrices.h"

namespace kvtide {
namespace {

constexpr float kUnitEpsilon = 1e-6f;  // beside the sum of squares

// The number of a layer's first tensor among those that are carried.
std::size_t first_tensor_of(const ModelConfig& config, int layer) {
  const auto end = config.layers.begin() + layer;
  return 2 *
         static_cast<std::size_t>(std::count_if(config.layers.begin(), end, [](const LayerConfig& before) {
           return before.mixer == Mixer::delta_net;
         }));
}

// One call for one layer.
class DeltaNet {
 public:
  DeltaNet(const ModelConfig& config, const DeltaNetWeights& weights, const ElementwiseRow& rows,
           const DeltaNetScratch& scratch, std::span<const std::byte> past)
      : net_(*config.delta),
        epsilon_(config.norm_epsilon),
        channels_(net_.channels()),
        w_(weights),
        rows_(rows),
        s_(scratch),
        conv_(w_.taps, {}, channels_, past, s_.qkv) {}

  const ChannelConv& conv() const { return conv_; }

  void convolve(std::int64_t t) const {
    float* y = s_.mixed + t * channels_;
    conv_.convolve(rows_, t, y);
    // A norm whose weights are 1 / sqrt(n) makes vectors of length 1; queries are divided by that root once more.
    const float epsilon = kUnitEpsilon / static_cast<float>(net_.key_dim);
    for (int head = 0; head < 2 * net_.key_heads; ++head) {
      float* values = y + head * net_.key_dim;
      const auto& unit = head < net_.key_heads ? w_.query_unit : w_.key_unit;
      rows_.rms_norm(values, unit.data(), net_.key_dim, epsilon, values);
    }
    for (int head = 0; head < net_.value_heads; ++head) {
      float &alpha = s_.alpha[t * net_.value_heads + head], &beta = s_.beta[t * net_.value_heads + head];
      const float time = softplus(alpha + w_.time_bias[as_size(head)]);
      alpha = std::exp(w_.decay[as_size(head)] * time);
      beta = sigmoid(beta);
    }
  }
  // One head's matrix behind token t from the one before it; both may be the same memory.
  void step(std::int64_t t, const HeadColumns& part, const float* before, float* after) const {
    const auto head = static_cast<int>(part.head);
    const float* mixed = s_.mixed + t * channels_;
    const int key_head = net_.tiled ? head % net_.key_heads : head / (net_.value_heads / net_.key_heads);
    const DeltaStep one{
        .query = mixed + std::int64_t{key_head} * net_.key_dim,
        .key = mixed + net_.key_width() + std::int64_t{key_head} * net_.key_dim,
        .value = mixed + 2 * net_.key_width() + std::int64_t{head} * net_.value_dim + part.first,
        .decay = s_.alpha[t * net_.value_heads + head],
        .rate = s_.beta[t * net_.value_heads + head],
        .keys = net_.key_dim,
        .values = part.count};
    rows_.delta_rule(one, before, after,
                     s_.out + t * net_.value_width() + std::int64_t{head} * net_.value_dim + part.first);
  }
  void finish(std::int64_t t) const {
    float* out = s_.out + t * net_.value_width();
    for (int head = 0; head < net_.value_heads; ++head) {
      float* values = out + std::int64_t{head} * net_.value_dim;
      rows_.rms_norm(values, w_.norm.data(), net_.value_dim, epsilon_, values);
    }
    rows_.silu_mul(s_.z + t * net_.value_width(), out, net_.value_width());
  }

 private:
  const DeltaNetConfig& net_;
  float epsilon_;
  std::int64_t channels_;
  const DeltaNetWeights& w_;
  const ElementwiseRow& rows_;
  const DeltaNetScratch& s_;
  ChannelConv conv_;
};

// Where the rows of queries and keys, values and gates lie in a tensor that has them key head by key head.
std::vector<std::int32_t> rows_of_qkvz(const DeltaNetConfig& net, bool gates) {
  const int group = net.value_heads / net.key_heads * net.value_dim, block = 2 * net.key_dim + 2 * group;
  std::vector<std::int32_t> order;
  const auto take = [&](int from, int count) {
    for (int head = 0; head < net.key_heads; ++head)
      for (int i = 0; i < count; ++i) order.push_back(head * block + from + i);
  };
  if (gates) {
    take(2 * net.key_dim + group, group);
    return order;
  }
  take(0, net.key_dim);
  take(net.key_dim, net.key_dim);
  take(2 * net.key_dim, group);
  return order;
}

std::vector<std::int32_t> rows_of_ba(const DeltaNetConfig& net, bool alpha) {
  const int group = net.value_heads / net.key_heads;
  std::vector<std::int32_t> order;
  for (int head = 0; head < net.value_heads; ++head)
    order.push_back(head / group * 2 * group + (alpha ? group : 0) + head % group);
  return order;
}

void load_projections(const DeltaNetConfig& net, std::int64_t width, WeightSource& source,
                      DeltaNetWeights& w) {
  const std::int64_t channels = net.channels(), values = net.value_width(), heads = net.value_heads;
  if (source.has(Role::delta_qkvz)) {
    w.qkv = source.picked_matrix(Role::delta_qkvz, channels + values, width, rows_of_qkvz(net, false));
    w.z = source.picked_matrix(Role::delta_qkvz, channels + values, width, rows_of_qkvz(net, true));
  } else {
    w.qkv = source.matrix(Role::delta_qkv, channels, width);
    w.z = source.matrix(Role::delta_z, values, width);
  }
  if (source.has(Role::delta_ba)) {
    w.beta = source.picked_matrix(Role::delta_ba, 2 * heads, width, rows_of_ba(net, false));
    w.alpha = source.picked_matrix(Role::delta_ba, 2 * heads, width, rows_of_ba(net, true));
  } else {
    w.beta = source.matrix(Role::delta_beta, heads, width);
    w.alpha = source.matrix(Role::delta_alpha, heads, width);
  }
}

}  // namespace

DeltaNetWeights load_delta_net(const ModelConfig& config, WeightSource& source) {
  const DeltaNetConfig& net = *config.delta;
  const std::int64_t channels = net.channels();
  DeltaNetWeights w;
  load_projections(net, config.width, source, w);
  w.out = source.matrix(Role::delta_out, config.width, net.value_width());
  w.taps = load_channel_taps(source, Role::delta_conv, channels, net.taps);
  if (source.has(Role::delta_log_decay)) {
    w.decay = source.values(Role::delta_log_decay, {net.value_heads});
    for (float& value : w.decay) value = static_cast<float>(-std::exp(static_cast<double>(value)));
  } else {
    w.decay = source.values(Role::delta_decay, {net.value_heads});
  }
  w.time_bias = source.values(Role::delta_time_bias, {net.value_heads});
  w.norm = source.values(Role::delta_norm, {net.value_dim});
  const float root = 1.0f / std::sqrt(static_cast<float>(net.key_dim));
  w.key_unit.assign(as_size(net.key_dim), root);
  w.query_unit.assign(as_size(net.key_dim), root * root);
  return w;
}

std::vector<RecurrentSpec> delta_net_tensors(const ModelConfig& config) {
  std::vector<RecurrentSpec> specs;
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    if (config.layers[layer].mixer != Mixer::delta_net) continue;
    const DeltaNetConfig& net = *config.delta;
    specs.push_back({cat("layers.", layer, ".conv_state"), DType::f32, {net.channels(), net.taps - 1}});
    specs.push_back({cat("layers.", layer, ".recurrent_state"),
                     DType::f32,
                     {net.value_heads, net.key_dim, net.value_dim}});
  }
  return specs;
}

void run_delta_net(const ModelConfig& config, const DeltaNetWeights& weights, const ElementwiseRow& rows,
                   ThreadPool& pool, KvState::Step& step, int layer, const DeltaNetScratch& scratch) {
  const std::size_t tensor = first_tensor_of(config, layer);
  const DeltaNet run(config, weights, rows, scratch, step.state().recurrent().value(tensor));
  run.conv().carry(step, tensor);
  for_rows(pool, 0, step.tokens(), [&](std::int64_t t) { run.convolve(t); });
  const DeltaNetConfig& net = *config.delta;
  run_head_matrices(pool, step, {tensor + 1, net.value_heads, net.key_dim, net.value_dim, scratch.out},
                    [&](std::int64_t t, const HeadColumns& part, const float* before, float* after) {
                      run.step(t, part, before, after);
                    });
  for_rows(pool, 0, step.tokens(), [&](std::int64_t t) { run.finish(t); });
}

}  // namespace kvtide
