#include "model/state_space.h"

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

// The number of a layer's first tensor among those that are carried.
std::size_t first_space_tensor(const ModelConfig& config, int layer) {
  const auto end = config.layers.begin() + layer;
  return 2 *
         static_cast<std::size_t>(std::count_if(config.layers.begin(), end, [](const LayerConfig& before) {
           return before.mixer == Mixer::state_space;
         }));
}

// One call for one layer.
class StateSpace {
 public:
  StateSpace(const ModelConfig& config, const StateSpaceWeights& weights, const ElementwiseRow& rows,
             const StateSpaceScratch& scratch)
      : space_(*config.state_space), epsilon_(config.norm_epsilon), w_(weights), rows_(rows), s_(scratch) {}

  void add_biases(std::int64_t t) const {
    if (w_.z_bias.empty()) return;
    rows_.add(s_.z + t * space_.inner(), w_.z_bias.data(), space_.inner());
    rows_.add(s_.projected + t * space_.channels(), w_.mixed_bias.data(), space_.channels());
  }
  void set_times(std::int64_t t) const {
    for (int head = 0; head < space_.heads; ++head) {
      const std::int64_t at = t * space_.heads + head;
      s_.time[at] = softplus(s_.time[at] + w_.time_bias[as_size(head)]);
      s_.decay[at] = std::exp(w_.decay[as_size(head)] * s_.time[at]);
    }
  }
  // One head's matrix behind token t from the one before it; both may be the same memory.
  void advance(std::int64_t t, const HeadColumns& part, const float* before, float* after) const {
    const std::int64_t head = part.head;
    const std::int64_t group = head / (space_.heads / space_.groups);
    const float* const x = s_.mixed + t * space_.channels();
    const float* const writes = x + space_.inner();
    const ScanStep one{.read = writes + (space_.groups + group) * space_.state,
                       .write = writes + group * space_.state,
                       .input = x + head * space_.head_dim + part.first,
                       .decay = s_.decay[t * space_.heads + head],
                       .rate = s_.time[t * space_.heads + head],
                       .skip = w_.skip[as_size(head)],
                       .keys = space_.state,
                       .values = part.count};
    rows_.selective_scan(one, before, after,
                         s_.out + t * space_.inner() + head * space_.head_dim + part.first);
  }
  void finish(std::int64_t t) const {
    float* const z = s_.z + t * space_.inner();
    rows_.silu_mul(z, s_.out + t * space_.inner(), space_.inner());
    const std::int64_t size = space_.inner() / space_.groups;
    for (std::int64_t first = 0; first < space_.inner(); first += size)
      rows_.rms_norm(z + first, w_.norm.data() + first, size, epsilon_, z + first);
  }

 private:
  const StateSpaceConfig& space_;
  float epsilon_;
  const StateSpaceWeights& w_;
  const ElementwiseRow& rows_;
  const StateSpaceScratch& s_;
};

// The projection has the rows of z, of what is convolved, and of the heads' times, in this order.
void load_projections(const StateSpaceConfig& space, std::int64_t width, WeightSource& source,
                      StateSpaceWeights& w) {
  const std::int64_t inner = space.inner(), channels = space.channels();
  const std::int64_t all = inner + channels + space.heads;
  w.z = source.part_matrix(Role::space_in, {{all, width}, 0, inner, width});
  w.mixed = source.part_matrix(Role::space_in, {{all, width}, inner, channels, width});
  w.time = source.part_matrix(Role::space_in, {{all, width}, inner + channels, space.heads, width});
  w.out = source.matrix(Role::space_out, width, inner);
  w.time_bias = source.values(Role::space_time_bias, {space.heads});
  if (!space.biased) return;
  const auto bias = source.values(Role::space_in_bias, {all});
  w.z_bias.assign(bias.begin(), bias.begin() + inner);
  w.mixed_bias.assign(bias.begin() + inner, bias.begin() + inner + channels);
  for (std::size_t head = 0; head < w.time_bias.size(); ++head)
    w.time_bias[head] += bias[as_size(inner + channels) + head];
  w.out_bias = source.values(Role::space_out_bias, {width});
}

}  // namespace

StateSpaceWeights load_state_space(const ModelConfig& config, WeightSource& source) {
  const StateSpaceConfig& space = *config.state_space;
  StateSpaceWeights w;
  load_projections(space, config.width, source, w);
  w.taps = load_channel_taps(source, Role::space_conv, space.channels(), space.taps);
  if (space.conv_biased) w.conv_bias = source.values(Role::space_conv_bias, {space.channels()});
  if (source.has(Role::space_log_decay) || !source.has(Role::space_decay)) {
    w.decay = source.values(Role::space_log_decay, {space.heads});
    for (float& value : w.decay) value = static_cast<float>(-std::exp(static_cast<double>(value)));
  } else {
    w.decay = source.values(Role::space_decay, {space.heads});
  }
  w.skip = source.values(Role::space_skip, {space.heads});
  w.norm = source.has(Role::space_group_norm)
               ? source.values(Role::space_group_norm, {space.groups, space.inner() / space.groups})
               : source.values(Role::space_norm, {space.inner()});
  return w;
}

std::vector<RecurrentSpec> state_space_tensors(const ModelConfig& config) {
  std::vector<RecurrentSpec> specs;
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    if (config.layers[layer].mixer != Mixer::state_space) continue;
    const StateSpaceConfig& space = *config.state_space;
    specs.push_back({cat("layers.", layer, ".conv_state"), DType::f32, {space.channels(), space.taps - 1}});
    specs.push_back(
        {cat("layers.", layer, ".recurrent_state"), DType::f32, {space.heads, space.state, space.head_dim}});
  }
  return specs;
}

void run_state_space(const ModelConfig& config, const StateSpaceWeights& weights, const ElementwiseRow& rows,
                     ThreadPool& pool, KvState::Step& step, int layer, const StateSpaceScratch& scratch) {
  const std::size_t tensor = first_space_tensor(config, layer);
  const StateSpaceConfig& space = *config.state_space;
  const StateSpace run(config, weights, rows, scratch);
  const ChannelConv conv(weights.taps, weights.conv_bias, space.channels(),
                         step.state().recurrent().value(tensor), scratch.projected);
  for_rows(pool, 0, step.tokens(), [&](std::int64_t t) { run.add_biases(t); });
  conv.carry(step, tensor);
  for_rows(pool, 0, step.tokens(), [&](std::int64_t t) {
    conv.convolve(rows, t, scratch.mixed + t * space.channels());
    run.set_times(t);
  });
  run_head_matrices(pool, step, {tensor + 1, space.heads, space.state, space.head_dim, scratch.out},
                    [&](std::int64_t t, const HeadColumns& part, const float* before, float* after) {
                      run.advance(t, part, before, after);
                    });
  for_rows(pool, 0, step.tokens(), [&](std::int64_t t) { run.finish(t); });
}

}  // namespace kvtide
