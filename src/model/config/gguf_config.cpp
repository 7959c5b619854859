#include "model/config/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "kvtide/error.h"
#include "model/config/longrope.h"

namespace kvtide {
namespace {

[[noreturn]] void refuse(const GgufFile& file, ErrorCode code, const std::string& why) {
  throw Error(code, cat(file.path(), ": ", why));
}

std::string full_key(const GgufFile& file, std::string_view key) {
  return cat(file.get_string("general.architecture").value_or(""), ".", key);
}

// yarn_log_multiplier is what folders call mscale_all_dim, beside an mscale of 1. attn_factor is their
// attention_factor; files that have both mean a product, of which one must be 1.
void read_yarn(const GgufFile& file, RopeConfig& rope) {
  rope.original_context = read_real(file, "rope.scaling.original_context_length", 1.0, 1e9);
  rope.fast_turns = read_real(file, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, rope.fast_turns);
  rope.slow_turns = read_real(file, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, rope.slow_turns);
  const double grown = rope.factor > 1.0 ? 0.1 * std::log(rope.factor) : 0.0;
  const double under = read_real(file, "rope.scaling.yarn_log_multiplier", 0.0, 1e3, 0.0);
  if (under > 0.0) rope.magnitude = (grown + 1.0) / (grown * under + 1.0);
  const double factor = read_real(file, "rope.scaling.attn_factor", 1e-3, 1e3, 1.0);
  if (factor == 1.0) return;
  if (under > 0.0)
    refuse(file, ErrorCode::unsupported,
           cat("rope scaling yarn with yarn_log_multiplier ", under, " and attn_factor ", factor,
               "; kvtide reads one of them"));
  rope.magnitude = factor;
}

RopeConfig read_rope(const GgufFile& file, int rope_dims) {
  RopeConfig rope;
  rope.base = read_real(file, "rope.freq_base", 1.0, 1e12, 10000.0);
  const auto scaling = file.get_string(full_key(file, "rope.scaling.type")).value_or("none");
  if (scaling == "linear" || scaling == "yarn") {
    rope.scaling = scaling == "linear" ? RopeScaling::linear : RopeScaling::yarn;
    rope.factor = read_real(file, "rope.scaling.factor", 1e-3, 1e6);
    if (scaling == "yarn") read_yarn(file, rope);
  } else if (scaling == "longrope" && file.find_tensor("rope_factors_short.weight") == nullptr) {
    refuse(
        file, ErrorCode::bad_format,
        "rope scaling longrope needs the tensors 'rope_factors_short.weight' and 'rope_factors_long.weight'");
  } else if (scaling != "none" && scaling != "llama3" && scaling != "longrope") {
    refuse(file, ErrorCode::unsupported,
           cat("rope scaling ", quoted(scaling),
               " is not supported; kvtide knows none, linear, yarn, llama3 and longrope"));
  }
  if (const GgufTensor* divisors = file.find_tensor("rope_freqs.weight")) {
    if (divisors->dtype != DType::f32 || divisors->shape.size() != 1 || divisors->shape[0] != rope_dims / 2)
      refuse(file, ErrorCode::bad_format,
             cat("tensor 'rope_freqs.weight' must be f32 [", rope_dims / 2, "], one value per rotated pair"));
    rope.divisors.resize(static_cast<std::size_t>(rope_dims / 2));
    std::memcpy(rope.divisors.data(), divisors->data.data(), rope.divisors.size() * sizeof(float));
    // Pairs that stand still come last, with a divisor that stands for infinity.
    constexpr float kStill = 1e30f;
    std::size_t turning = rope.divisors.size();
    while (turning > 0 && rope.divisors[turning - 1] == kStill) rope.divisors[--turning] = 1.0f;
    if (turning < rope.divisors.size()) rope.turning = static_cast<int>(turning);
    for (const float divisor : rope.divisors)
      if (!(divisor >= 1e-6f && divisor <= 1e6f))
        refuse(
            file, ErrorCode::bad_format,
            cat("tensor 'rope_freqs.weight' holds ", divisor, "; its values must lie between 1e-6 and 1e6"));
  }
  return rope;
}

}  // namespace

std::int64_t read_count(const GgufFile& file, std::string_view key, std::int64_t low, std::int64_t high,
                        std::optional<std::int64_t> fallback) {
  const std::string name = full_key(file, key);
  const auto value = file.get_uint(name);
  if (!value && fallback) return *fallback;
  if (!value) refuse(file, ErrorCode::bad_format, cat("the key '", name, "' is missing"));
  if (*value < static_cast<std::uint64_t>(low) || *value > static_cast<std::uint64_t>(high))
    refuse(file, ErrorCode::bad_format,
           cat("'", name, "' is ", *value, "; it must be between ", low, " and ", high));
  return static_cast<std::int64_t>(*value);
}

double read_real(const GgufFile& file, std::string_view key, double low, double high,
                 std::optional<double> fallback) {
  const std::string name = full_key(file, key);
  const auto value = file.get_number(name);
  if (!value && fallback) return *fallback;
  if (!value) refuse(file, ErrorCode::bad_format, cat("the key '", name, "' is missing"));
  if (!(*value >= low && *value <= high))
    refuse(file, ErrorCode::bad_format,
           cat("'", name, "' is ", *value, "; it must be between ", low, " and ", high));
  return *value;
}

namespace {

// One number for all layers, or one for each: then layers with 0 have no attention, and all others the same.
void read_kv_heads(const GgufFile& file, bool uneven, ModelConfig& config) {
  constexpr const char* kKey = "attention.head_count_kv";
  const GgufValue* value = file.find(full_key(file, kKey));
  if (value == nullptr || value->type != GgufType::array) {
    config.kv_heads = static_cast<int>(read_count(file, kKey, 1, 4096, config.heads));
    return;
  }
  const auto listed = file.get_ints(full_key(file, kKey));
  if (listed->size() != config.layers.size())
    refuse(file, ErrorCode::bad_format,
           cat("'", full_key(file, kKey), "' has ", listed->size(), " entries for ", config.layers.size(),
               " layers"));
  const int most = *std::max_element(listed->begin(), listed->end());
  if (most < 1 || most > 4096)
    refuse(file, ErrorCode::bad_format,
           cat("the largest of '", full_key(file, kKey), "' is ", most, "; it must be between 1 and 4096"));
  config.kv_heads = most;
  for (std::size_t i = 0; i < listed->size(); ++i) {
    const int heads = (*listed)[i];
    if (heads == 0)
      config.layers[i].mixer = Mixer::short_convolution;
    else if (heads != most && !uneven)
      refuse(file, ErrorCode::unsupported,
             cat("layer ", i, " has ", heads, " KV heads and others have ", most,
                 "; all that have any must have the same number"));
    else if (heads < 0)
      refuse(file, ErrorCode::bad_format, cat("layer ", i, " has ", heads, " KV heads"));
    else
      config.layers[i].kv_heads = uneven ? heads : 0;
  }
}

// Inside the feed-forward: one number for all layers, or one for each.
void read_hidden(const GgufFile& file, bool uneven, ModelConfig& config) {
  constexpr std::int64_t kWidestSize = std::int64_t{1} << 20;
  constexpr const char* kKey = "feed_forward_length";
  const GgufValue* value = file.find(full_key(file, kKey));
  if (uneven && value != nullptr && value->type == GgufType::array) {
    const auto listed = file.get_ints(full_key(file, kKey));
    if (!listed || listed->size() != config.layers.size())
      refuse(file, ErrorCode::bad_format,
             cat("'", full_key(file, kKey), "' must have one entry for each of ", config.layers.size(),
                 " layers"));
    for (std::size_t i = 0; i < listed->size(); ++i) {
      const std::int64_t hidden = (*listed)[i];
      if (hidden < 0 || hidden > kWidestSize)
        refuse(
            file, ErrorCode::bad_format,
            cat("layer ", i, " has a feed-forward of ", hidden, "; it must be between 0 and ", kWidestSize));
      config.layers[i].hidden = hidden;
      config.layers[i].feed_forward = hidden > 0;
      config.hidden = std::max(config.hidden, hidden);
    }
    return;
  }
  // Models whose layers all have experts may say the width inside those only.
  std::optional<std::int64_t> inside;
  if (file.find(full_key(file, "expert_feed_forward_length")) != nullptr)
    inside = read_count(file, "expert_feed_forward_length", 1, kWidestSize);
  config.hidden = read_count(file, kKey, 0, kWidestSize, inside);
}

// Of layers with attention, and how they rotate.
void read_heads(const GgufFile& file, bool uneven, ModelConfig& config) {
  read_kv_heads(file, uneven, config);
  check_heads(file.path(), config);
  std::optional<std::int64_t> divided;
  if (config.width % config.heads == 0) divided = config.width / config.heads;
  config.head_dim = static_cast<int>(read_count(file, "attention.key_length", 1, kMaxHeadDim, divided));
  if (config.head_dim > kMaxHeadDim)
    refuse(file, ErrorCode::unsupported, cat("heads of ", config.head_dim, " are wider than ", kMaxHeadDim));
  const auto value_length = read_count(file, "attention.value_length", 1, kMaxHeadDim, config.head_dim);
  // Files of models that keep latents say the sizes of those.
  if (value_length != config.head_dim && file.find(full_key(file, "attention.key_length_mla")) == nullptr)
    refuse(file, ErrorCode::unsupported,
           cat("keys of ", config.head_dim, " and values of ", value_length,
               " elements: kvtide needs both the same"));
  config.rope_dims =
      static_cast<int>(read_count(file, "rope.dimension_count", 2, kMaxHeadDim, config.head_dim));
  if (config.rope_dims > config.head_dim || config.rope_dims % 2 != 0)
    refuse(file, ErrorCode::bad_format,
           cat("rope.dimension_count is ", config.rope_dims, "; it must be even and at most the head's ",
               config.head_dim));
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.ropes.push_back(read_rope(file, config.rope_dims));
}

}  // namespace

void read_one_window(const GgufFile& file, ModelConfig& config) {
  const auto window = read_count(file, "attention.sliding_window", 0, std::int64_t{1} << 31, 0);
  if (window == 0) return;
  for (LayerConfig& layer : config.layers) layer.window = window;
}

ExpertsConfig read_experts(const GgufFile& file, bool shared) {
  ExpertsConfig experts;
  experts.count = static_cast<int>(read_count(file, "expert_count", 1, 1024));
  experts.chosen = static_cast<int>(read_count(file, "expert_used_count", 1, 1024));
  experts.hidden = read_count(file, "expert_feed_forward_length", 1, std::int64_t{1} << 20);
  check_experts(file.path(), experts);
  if (!shared && read_count(file, "expert_shared_count", 0, 1024, 0) != 0)
    refuse(file, ErrorCode::unsupported,
           "experts that every token passes (expert_shared_count) are not supported");
  return experts;
}

void read_common(const GgufFile& file, bool uneven, ModelConfig& config) {
  constexpr std::int64_t kWidestSize = std::int64_t{1} << 20;
  config.context_length = read_count(file, "context_length", 1, std::int64_t{1} << 31);
  config.width = read_count(file, "embedding_length", 1, kWidestSize);
  config.heads = static_cast<int>(read_count(file, "attention.head_count", 0, 4096));
  config.layers.resize(static_cast<std::size_t>(read_count(file, "block_count", 1, 1024)));
  read_hidden(file, uneven, config);
  // Models whose norms take the mean off have the number under the shorter name.
  const char* epsilon = "attention.layer_norm_rms_epsilon";
  if (file.find(full_key(file, "attention.layer_norm_epsilon")) != nullptr)
    epsilon = "attention.layer_norm_epsilon";
  config.norm_epsilon = static_cast<float>(read_real(file, epsilon, 1e-12, 1e-1));
  if (config.heads > 0) {
    read_heads(file, uneven, config);
    read_longrope(file, config);
  }

  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) refuse(file, ErrorCode::bad_format, "the tensor 'token_embd.weight' is missing");
  if (embedding->shape.size() != 2 || embedding->shape[1] < 1 ||
      embedding->shape[1] > (std::int64_t{1} << 24))
    refuse(file, ErrorCode::bad_format,
           "the tensor 'token_embd.weight' must have the shape [embedding, vocabulary]");
  config.vocab = embedding->shape[1];
}

}  // namespace kvtide
