#include "coreml/export/convolved_heads.h"

#include <limits>
#include <vector>

#include "model/cca_weights.h"

namespace kvtide::coreml {
namespace convolved_heads_details {

using Name = std::string;

class Mixing {
 public:
  Mixing(FunctionBuilder& f, const ModelConfig& config, const LayerWeights& weights,
         const WeightConstants& constants, const Name& normed, const std::string& layer,
         const std::string& behind)
      : f_(f),
        op_(f),
        config_(config),
        s_(config),
        w_(weights),
        cca_(*weights.cca),
        constants_(constants),
        normed_(normed),
        layer_(layer),
        behind_(behind) {}

  ConvolvedHeads mixed() {
    ConvolvedHeads heads;
    heads.conv_state = f_.state("conv_state" + behind_, DataType::fp16, {1, s_.channels, 2});
    heads.prev_value = f_.state("prev_value" + behind_, DataType::fp16, {1, s_.kv_width / 2});
    const Name query = project("query", w_.query), key = project("key", w_.key);
    const Name convolved = convolve(heads.conv_state, op_.concat({query, key}, -1));
    const int all = static_cast<int>(s_.heads), asking = config_.heads, shared = config_.kv_heads;
    const Name asked = by_group(op_.part(convolved, 1, 0, asking), asking / shared);
    const Name shown = by_group(op_.part(convolved, 1, asking, all), 1);
    const Name asked_before = by_group(heads_of(query, asking), asking / shared);
    const Name means = op_.mul(op_.add(asked_before, by_group(heads_of(key, shared), 1)), half(0.5f));
    heads.query = normed_heads(op_.add(asked, means), "query_gain", {s_.head_dim}, cca_.query_gain, asking);
    Shape one = f_.type_of(means).shape;
    one[1] = 1;
    const Name mean = f_.op("reduce_mean", {{"x", means}, {"axes", {1}}, {"keep_dims", true}},
                            tensor(DataType::fp16, std::move(one)));
    heads.key =
        normed_heads(op_.add(shown, mean), "key_gain", {shared, 1, 1, s_.head_dim}, cca_.key_gain, shared);
    heads.value = values(heads.prev_value);
    return heads;
  }

 private:
  Name named(const std::string& what) const { return layer_ + "_" + what; }
  Name project(const std::string& what, const WeightMatrix& matrix) {
    return op_.linear(normed_, constants_.matrix(f_, named(what), matrix));
  }
  Name numbers(const std::string& what, Shape shape, const std::vector<float>& values) {
    return WeightConstants::numbers(f_, named(what), std::move(shape), values);
  }

  // [1, heads, T, head_dim] of [1, T, heads * head_dim].
  Name heads_of(const Name& x, int heads) {
    return op_.transpose(op_.reshape(x, {1, -1, heads, static_cast<int>(s_.head_dim)}), {0, 2, 1, 3});
  }
  // [kv_heads, group, T, head_dim] of [1, kv_heads * group, T, head_dim].
  Name by_group(const Name& x, int group) {
    return op_.reshape(x, {config_.kv_heads, group, -1, static_cast<int>(s_.head_dim)});
  }

  // Both convolutions over the state's two tokens and the call's: [1, heads + kv_heads, T, head_dim].
  Name convolve(const Name& state, const Name& added) {
    const Name before = op_.transpose(f_.read_state(state), {0, 2, 1});
    const Name u = op_.concat({before, added}, 1);
    // coremltools does not see how many rows a slice from the end has: the reshape says it.
    const Name last = op_.reshape(op_.part(u, 1, -2, 0), {1, 2, static_cast<int>(s_.channels)});
    f_.write_state(state, op_.transpose(last, {0, 2, 1}));
    const Name older = op_.mul(op_.part(u, 1, 0, -1), numbers("depthwise_older", {s_.channels}, cca_.older));
    const Name newer = op_.mul(op_.part(u, 1, 1, 0), numbers("depthwise_newer", {s_.channels}, cca_.newer));
    const Name d = heads_of(
        op_.add(op_.add(older, newer), numbers("depthwise_bias", {s_.channels}, cca_.depthwise_bias)),
        static_cast<int>(s_.heads));
    const Name first = op_.matmul(op_.part(d, 2, 0, -1), grouped(0)),
               second = op_.matmul(op_.part(d, 2, 1, 0), grouped(1));
    return op_.add(op_.add(first, second),
                   numbers("grouped_bias", {1, s_.heads, 1, s_.head_dim}, cca_.grouped_bias));
  }

  // [1, heads, inputs, outputs] of one tap.
  Name grouped(int tap) {
    const std::vector<float> taps = grouped_taps(cca_, s_);  // [heads][outputs][inputs][2]
    const auto n = static_cast<std::size_t>(s_.head_dim);
    std::vector<float> matrix(taps.size() / 2);
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      const std::size_t head = i / (n * n), in = i / n % n, out = i % n;
      matrix[i] = taps[2 * ((head * n + out) * n + in) + static_cast<std::size_t>(tap)];
    }
    return numbers(tap == 0 ? "grouped_older" : "grouped_newer", {1, s_.heads, s_.head_dim, s_.head_dim},
                   matrix);
  }

  // As long as the square root of head_dim, times `gain`: [1, heads, T, head_dim].
  Name normed_heads(const Name& x, const std::string& what, Shape shape, const std::vector<float>& gain,
                    int heads) {
    constexpr float kEpsilon = std::numeric_limits<float>::epsilon();
    const Name normed = op_.rms_norm(x, numbers(what, std::move(shape), gain),
                                     kEpsilon * kEpsilon / static_cast<float>(s_.head_dim));
    return op_.reshape(normed, {1, heads, -1, static_cast<int>(s_.head_dim)});
  }

  // The second half is that of the token before.
  Name values(const Name& state) {
    const int half_width = static_cast<int>(s_.kv_width / 2);
    const Name before = op_.reshape(f_.read_state(state), {1, 1, half_width});
    const Name late = op_.concat({before, project("value_delayed", cca_.value_delayed)}, 1);
    f_.write_state(state, op_.reshape(op_.part(late, 1, -1, 0), {1, half_width}));
    return heads_of(op_.concat({project("value", w_.value), op_.part(late, 1, 0, -1)}, -1), config_.kv_heads);
  }

  FunctionBuilder& f_;
  Operations op_;
  const ModelConfig& config_;
  const CcaSizes s_;
  const LayerWeights& w_;
  const CcaWeights& cca_;
  const WeightConstants& constants_;
  const Name normed_;
  const std::string layer_, behind_;
};

}  // namespace convolved_heads_details

ConvolvedHeads convolved_heads(FunctionBuilder& f, const ModelConfig& config, const LayerWeights& weights,
                               const WeightConstants& constants, const std::string& normed,
                               const std::string& layer, const std::string& behind) {
  return convolved_heads_details::Mixing(f, config, weights, constants, normed, layer, behind).mixed();
}

}  // namespace kvtide::coreml
