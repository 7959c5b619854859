#include "model/config/folder_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "model/config/longrope.h"

namespace kvtide {
namespace {

constexpr std::int64_t kWide = std::int64_t{1} << 20;
constexpr std::int64_t kLong = std::int64_t{1} << 31;

// One divisor of the frequency per pair: 1 for short waves, the factor for long ones, a blend between.
// Source: the published scaling of Llama 3.1 (Meta, 2024).
std::vector<float> llama3_divisors(const JsonFields& rope, double base, int rope_dims) {
  const double factor = rope.real("factor", 1.0, 1e6), low = rope.real("low_freq_factor", 1e-3, 1e6),
               high = rope.real("high_freq_factor", 1e-3, 1e6),
               original = rope.real("original_max_position_embeddings", 1.0, 1e9);
  if (!(high > low))
    rope.refuse(ErrorCode::bad_format,
                cat("rope scaling llama3: high_freq_factor ", high, " must exceed low_freq_factor ", low));
  std::vector<float> divisors;
  for (int i = 0; i < rope_dims / 2; ++i) {
    const double wave = 2.0 * std::numbers::pi * std::pow(base, 2.0 * i / rope_dims);
    double divisor = 1.0;
    if (wave > original / low) {
      divisor = factor;
    } else if (wave >= original / high) {
      const double share = (original / wave - low) / (high - low);
      divisor = 1.0 / ((1.0 - share) / factor + share);
    }
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

// What cosines and sines are multiplied by: attention_factor, or what mscale and mscale_all_dim make of the
// factor.
std::optional<double> yarn_magnitude(const JsonFields& rope, double factor) {
  if (rope.has("attention_factor")) return rope.real("attention_factor", 1e-3, 1e3);
  const double over = rope.real("mscale", 0.0, 1e3, 0.0), under = rope.real("mscale_all_dim", 0.0, 1e3, 0.0);
  if (over == 0.0 || under == 0.0) return std::nullopt;
  const double grown = factor > 1.0 ? 0.1 * std::log(factor) : 0.0;
  return (grown * over + 1.0) / (grown * under + 1.0);
}

void read_yarn(const JsonFields& rope, const ModelConfig& config, RopeConfig& out) {
  out.scaling = RopeScaling::yarn;
  out.factor = rope.real("factor", 1e-3, 1e6);
  out.original_context =
      rope.real("original_max_position_embeddings", 1.0, 1e9, static_cast<double>(config.context_length));
  out.fast_turns = rope.real("beta_fast", 1e-3, 1e6, out.fast_turns);
  out.slow_turns = rope.real("beta_slow", 1e-3, 1e6, out.slow_turns);
  out.magnitude = yarn_magnitude(rope, out.factor);
  out.whole_pairs = rope.flag("truncate", true);
}

}  // namespace

void require_absent_or(const JsonFields& json, const char* key, bool value) {
  if (json.flag(key, value) != value)
    json.refuse(ErrorCode::unsupported,
                cat("'", key, "' is ", value ? "false" : "true", ", which is not supported"));
}

ExpertsConfig read_experts(const JsonFields& json, const char* count, const char* hidden) {
  ExpertsConfig experts;
  experts.count = static_cast<int>(json.count(count, 1, 1024));
  experts.chosen = static_cast<int>(json.count("num_experts_per_tok", 1, 1024));
  experts.hidden = json.count(hidden, 1, kWide);
  check_experts(json.file(), experts);
  return experts;
}

void read_routed_layers(const JsonFields& json, ModelConfig& config) {
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  const auto step = json.count("decoder_sparse_step", 1, 1024, 1);
  const auto single = json.has("mlp_only_layers")
                          ? json.numbers<std::vector<std::int64_t>>("mlp_only_layers", 0, layers - 1)
                          : std::vector<std::int64_t>();
  for (std::int64_t i = 0; i < layers; ++i)
    config.layers[static_cast<std::size_t>(i)].routed =
        (i + 1) % step == 0 && std::find(single.begin(), single.end(), i) == single.end();
}

void require_silu(const JsonFields& json) {
  if (json.text("hidden_act").value_or("silu") != "silu")
    json.refuse(ErrorCode::unsupported, "'hidden_act' must be silu");
}

RopeConfig read_rope_object(const JsonFields& rope, const ModelConfig& config, double base, double original) {
  RopeConfig out;
  out.base = rope.real("rope_theta", 1.0, 1e12, base);
  const std::string type = rope.text("rope_type").value_or(rope.text("type").value_or("default"));
  if (type == "linear") {
    out.scaling = RopeScaling::linear;
    out.factor = rope.real("factor", 1e-3, 1e6);
  } else if (type == "yarn") {
    read_yarn(rope, config, out);
  } else if (type == "llama3") {
    out.divisors = llama3_divisors(rope, out.base, config.rope_dims);
  } else if (type == "longrope" || type == "su") {  // "su": its first name
    read_longrope(rope, config, original, out);
  } else if (type != "default") {
    rope.refuse(ErrorCode::unsupported,
                cat("rope scaling ", quoted(type),
                    " is not supported; kvtide knows default, linear, yarn, llama3 and longrope"));
  }
  return out;
}

RopeConfig read_folder_rope(const JsonFields& json, const ModelConfig& config, double base) {
  base = json.real("rope_theta", 1.0, 1e12, base);
  const double original = json.real("original_max_position_embeddings", 1.0, 1e9, 0.0);
  if (const auto rope = json.child("rope_parameters")) return read_rope_object(*rope, config, base, original);
  if (const auto rope = json.child("rope_scaling")) return read_rope_object(*rope, config, base, original);
  RopeConfig out;
  out.base = base;
  return out;
}

void read_windows(const JsonFields& json, ModelConfig& config, std::int64_t window_from) {
  const auto types = json.texts("layer_types");
  if (types.empty()) {
    if (!json.has("sliding_window")) return;
    const auto window = json.count("sliding_window", 1, kLong);
    for (std::size_t i = 0; i < config.layers.size(); ++i)
      if (static_cast<std::int64_t>(i) >= window_from) config.layers[i].window = window;
    return;
  }
  if (types.size() != config.layers.size())
    json.refuse(ErrorCode::bad_format,
                cat("'layer_types' has ", types.size(), " entries for ", config.layers.size(), " layers"));
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "sliding_attention")
      config.layers[i].window = json.count("sliding_window", 1, kLong);
    else if (types[i] != "full_attention")
      json.refuse(ErrorCode::unsupported, cat("layer ", i, " is of the type ", quoted(types[i]),
                                              "; kvtide knows full_attention and sliding_attention"));
  }
}

void read_llama_like(const JsonFields& json, ModelConfig& config, const char* hidden_key) {
  config.context_length = json.count("max_position_embeddings", 1, kLong);
  config.width = json.count("hidden_size", 1, kWide);
  config.hidden = json.count(hidden_key, 1, kWide);
  config.heads = static_cast<int>(json.count("num_attention_heads", 1, 4096));
  config.kv_heads = static_cast<int>(json.count("num_key_value_heads", 1, 4096, config.heads));
  check_heads(json.file(), config);
  std::optional<std::int64_t> divided;
  if (config.width % config.heads == 0) divided = config.width / config.heads;
  config.head_dim = static_cast<int>(json.count("head_dim", 1, kMaxHeadDim, divided));
  if (config.head_dim > kMaxHeadDim)
    json.refuse(ErrorCode::unsupported, cat("heads of ", config.head_dim, " are wider than ", kMaxHeadDim));
  double rotated = json.real("partial_rotary_factor", 0.0, 1.0, 1.0);
  if (const auto rope = json.child("rope_parameters"))
    rotated = rope->real("partial_rotary_factor", 0.0, 1.0, rotated);
  config.rope_dims = static_cast<int>(config.head_dim * rotated);
  if (config.rope_dims < 2 || config.rope_dims % 2 != 0)
    json.refuse(ErrorCode::bad_format, cat(config.rope_dims,
                                           " dimensions of a head are rotated; it must be an "
                                           "even number, at least 2"));
  config.norm_epsilon = static_cast<float>(json.real("rms_norm_eps", 1e-12, 1e-1, 1e-6));
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.layers.resize(static_cast<std::size_t>(json.count("num_hidden_layers", 1, 1024)));
  config.vocab = json.count("vocab_size", 1, std::int64_t{1} << 24);
  config.tied_head = json.flag("tie_word_embeddings", false);
  require_absent_or(json, "mlp_bias", false);
}

}  // namespace kvtide
