#include "validate/plain_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/text.h"
#include "kernels/codec.h"
#include "kvtide/error.h"
#include "model/checkpoint.h"
#include "model/config/longrope.h"
#include "model/stored_rows.h"

namespace kvtide {
namespace {

std::int64_t width_of(const ModelConfig& c, Role role) {
  const std::int64_t queries = std::int64_t{c.heads} * c.head_dim;
  const std::int64_t keys = std::int64_t{c.kv_heads} * c.head_dim;
  switch (role) {
    case Role::query:
    case Role::query_bias:
      return queries;
    case Role::key:
    case Role::key_bias:
    case Role::value:
    case Role::value_bias:
      return keys;
    default:
      return 0;
  }
}

// Where a role begins in a tensor that holds queries, keys and values, or gate and up.
std::int64_t fused_offset(const ModelConfig& c, Role role) {
  if (role == Role::up) return c.hidden;
  if (role == Role::key || role == Role::key_bias) return width_of(c, Role::query);
  if (role == Role::value || role == Role::value_bias)
    return width_of(c, Role::query) + width_of(c, Role::key);
  return 0;
}

// One row of a tensor, whichever way it lies.
void decode(const StoredTensor& tensor, std::int64_t r, std::int64_t columns, float* out) {
  if (!tensor.block_scales.empty()) {
    const StoredRows one(tensor, r, 1, columns, nullptr);
    const std::byte* at = nullptr;
    std::vector<std::byte> scratch;
    one.gather(0, 1, &at, scratch);
    decode_row(one.dtype(), at, columns, out);
    return;
  }
  const std::byte* bytes = tensor.bytes.data();
  const bool integers = !tensor.scales.empty();
  if (!integers && !tensor.rule.transposed) {
    decode_row(tensor.dtype, bytes + r * dtype_bytes(tensor.dtype, columns), columns, out);
    return;
  }
  const std::int64_t stride = tensor.rule.transposed ? tensor.shape.back() : 1;
  // Of stacked matrices every one lies by itself.
  const std::int64_t start =
      tensor.rule.transposed ? r / stride * columns * stride + r % stride : r * columns;
  const std::int64_t element = integers ? 1 : dtype_bytes(tensor.dtype, 1);
  const float scale = !integers                   ? 1.0f
                      : tensor.scales.size() == 1 ? tensor.scales[0]
                                                  : tensor.scales[static_cast<std::size_t>(r)];
  for (std::int64_t k = 0; k < columns; ++k) {
    const std::byte* at = bytes + (start + k * stride) * element;
    if (integers)
      out[k] = scale * static_cast<float>(static_cast<std::int8_t>(*at));
    else
      decode_row(tensor.dtype, at, 1, out + k);
  }
}

class CheckpointWeights final : public PlainWeights {
 public:
  CheckpointWeights(const std::string& path, std::int64_t context)
      : checkpoint_(open_checkpoint(path)), config_(checkpoint_->config()) {
    choose_rotation(config_, context);
    constexpr std::array known = {"llama",      "gemma3",         "qwen2",    "qwen3",      "gpt2",
                                  "zaya",       "smollm3",        "mistral3", "phi3",       "olmo2",
                                  "qwen3moe",   "lfm2",           "lfm2moe",  "qwen35",     "qwen35moe",
                                  "qwen3next",  "mamba2",         "granite",  "granitemoe", "granitehybrid",
                                  "nemotron_h", "nemotron_h_moe", "gpt-oss",  "deepseek2"};
    if (std::find(known.begin(), known.end(), config().architecture) == known.end())
      throw Error(
          ErrorCode::unsupported,
          cat(path, ": there is no plain forward pass for the architecture ", quoted(config().architecture),
              "; give golden arrays with --reference, made by tools/references/golden_arrays.py"));
  }

  const ModelConfig& config() const override { return config_; }
  bool has(Role role, int layer) const override { return checkpoint_->find(role, layer).has_value(); }

  PlainMatrix matrix(Role role, int layer, std::int64_t rows, std::int64_t columns,
                     const ExpertRows& expert) const override {
    auto tensor = checkpoint_->find(role, layer, expert.expert);
    if (!tensor)
      throw Error(ErrorCode::bad_format,
                  cat(checkpoint_->path(), ": the tensor '",
                      checkpoint_->wanted_name(role, layer, expert.expert), "' is missing"));
    std::int64_t first = tensor->rule.fused ? fused_offset(config(), role) : 0;
    if (expert.of > 0) first = expert.first + (tensor->rule.stacked ? expert.expert * expert.of : 0);
    return {rows, columns, [stored = std::move(*tensor), first, columns](std::int64_t index, float* out) {
              decode(stored, first + index, columns, out);
            }};
  }

  std::vector<float> vector(Role role, int layer, std::int64_t n) const override {
    const auto tensor = checkpoint_->find(role, layer);
    if (!tensor) return {};
    std::int64_t all = 1;
    for (const std::int64_t extent : tensor->shape) all *= extent;
    std::vector<float> values(static_cast<std::size_t>(all));
    decode_row(tensor->dtype, tensor->bytes.data(), all, values.data());
    const std::int64_t first = tensor->rule.fused ? fused_offset(config(), role) : 0;
    std::vector<float> out(values.begin() + first, values.begin() + first + n);
    for (float& value : out) value += tensor->rule.plus;
    return out;
  }

  // Angles per position of one pair after another: RoPE (Su et al. 2021), position interpolation (Chen et al.
  // 2023), the divisors of Llama 3, and YaRN (Peng et al. 2023) with its ramp from 32 turns to 1.
  std::vector<double> frequencies(int layer) const override {
    if (config().learned_positions) return {};
    const RopeConfig& rope = rope_of(layer);
    const double dims = config().rope_dims;
    std::vector<double> out;
    for (int i = 0; i < config().rope_dims / 2; ++i) {
      double frequency = rope.still ? 0.0 : 1.0 / std::pow(rope.base, 2.0 * i / dims);
      if (!rope.divisors.empty())
        frequency /= static_cast<double>(rope.divisors[static_cast<std::size_t>(i)]);
      if (rope.scaling == RopeScaling::linear) frequency /= rope.factor;
      if (rope.scaling == RopeScaling::yarn) {
        const auto pair_of = [&](double turns) {
          return dims * std::log(rope.original_context / (2.0 * std::numbers::pi * turns)) /
                 (2.0 * std::log(rope.base));
        };
        const double first = pair_of(rope.fast_turns), last = pair_of(rope.slow_turns);
        const double from = std::max(0.0, rope.whole_pairs ? std::floor(first) : first);
        double to = std::min(dims - 1.0, rope.whole_pairs ? std::ceil(last) : last);
        if (to == from) to += 0.001;
        const double ramp = std::clamp((i - from) / (to - from), 0.0, 1.0);
        frequency = (1.0 - ramp) * frequency + ramp * frequency / rope.factor;
      }
      out.push_back(frequency);
    }
    return out;
  }

  double magnitude(int layer) const override {
    if (config().learned_positions) return 1.0;
    const RopeConfig& rope = rope_of(layer);
    if (rope.scaling != RopeScaling::yarn) return rope.magnitude.value_or(1.0);
    return rope.magnitude.value_or(rope.factor > 1.0 ? 1.0 + 0.1 * std::log(rope.factor) : 1.0);
  }
  double rope_base(int layer) const override { return rope_of(layer).base; }

 private:
  const RopeConfig& rope_of(int layer) const {
    return config().ropes[static_cast<std::size_t>(config().layers[static_cast<std::size_t>(layer)].rope)];
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
};

}  // namespace

void require_known(const ModelConfig& config) {
  if (!even_layers(config) || config.value_norm)
    throw Error(
        ErrorCode::unsupported,
        cat("the validator does not know layers that differ in their heads or share rows, as those of ",
            config.architecture, " do"));
}

std::unique_ptr<PlainWeights> plain_weights(const std::string& path, std::int64_t context) {
  return std::make_unique<CheckpointWeights>(path, context);
}

}  // namespace kvtide
