#include "model/arch/qwen_linear.h"

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "kvtide/error.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostHeads = 1024, kWidestHead = 1024, kMostTaps = 16, kEvery = 4;
constexpr double kRotated = 0.25;

void set_common(ModelConfig& config) {
  config.head_norms = true;
  config.gated_attention = true;
}

// Every `every`-th layer has attention.
void set_mixers(ModelConfig& config, std::int64_t every) {
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    config.layers[i].mixer =
        (static_cast<std::int64_t>(i) + 1) % every == 0 ? Mixer::attention : Mixer::delta_net;
}

void read_mixers(const JsonFields& json, ModelConfig& config) {
  const auto types = json.texts("layer_types");
  if (types.empty()) {
    set_mixers(config, json.count("full_attention_interval", 1, 1024, kEvery));
  } else if (types.size() != config.layers.size()) {
    json.refuse(ErrorCode::bad_format,
                cat("'layer_types' has ", types.size(), " entries for ", config.layers.size(), " layers"));
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "linear_attention")
      config.layers[i].mixer = Mixer::delta_net;
    else if (types[i] != "full_attention")
      json.refuse(ErrorCode::unsupported,
                  cat("layer ", i, " is of the type ", quoted(types[i]),
                      "; kvtide knows full_attention and linear_attention of this model"));
  }
  if (attention_layers(config).empty())
    json.refuse(ErrorCode::unsupported, "no layer has attention; at least one must");
}

}  // namespace

void read_qwen_linear(const GgufFile& file, ModelConfig& config) {
  set_common(config);
  DeltaNetConfig net;
  net.key_heads = static_cast<int>(read_count(file, "ssm.group_count", 1, kMostHeads));
  net.value_heads = static_cast<int>(read_count(file, "ssm.time_step_rank", 1, kMostHeads));
  net.key_dim = static_cast<int>(read_count(file, "ssm.state_size", 1, kWidestHead));
  const auto inner = read_count(file, "ssm.inner_size", 1, kMostHeads * kWidestHead);
  net.value_dim = static_cast<int>(inner / net.value_heads);
  if (net.value_width() != inner || net.value_dim > kWidestHead)
    throw Error(ErrorCode::bad_format,
                cat(file.path(), ": 'ssm.inner_size' is ", inner, "; it must be a multiple of ",
                    net.value_heads, " heads of at most ", kWidestHead));
  net.taps = static_cast<int>(read_count(file, "ssm.conv_kernel", 2, kMostTaps));
  check_delta_net(file.path(), net);
  config.delta = net;
  // Layers that guess further tokens stand behind the others and are left out.
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  config.layers.resize(
      static_cast<std::size_t>(layers - read_count(file, "nextn_predict_layers", 0, layers - 1, 0)));
  set_mixers(config, read_count(file, "full_attention_interval", 1, 1024, kEvery));
  if (attention_layers(config).empty())
    throw Error(ErrorCode::unsupported, cat(file.path(), ": no layer has attention; at least one must"));
}

void read_qwen_linear(const JsonFields& json, ModelConfig& config, const char* hidden_key) {
  read_llama_like(json, config, hidden_key);
  require_silu(json);
  require_absent_or(json, "attention_bias", false);
  set_common(config);
  const auto rope = json.child("rope_parameters");
  if (!json.has("partial_rotary_factor") && !(rope && rope->has("partial_rotary_factor")))
    config.rope_dims = static_cast<int>(config.head_dim * kRotated);
  if (config.rope_dims < 2 || config.rope_dims % 2 != 0)
    json.refuse(ErrorCode::bad_format, cat(config.rope_dims,
                                           " dimensions of a head are rotated; it must be an even "
                                           "number, at least 2"));
  config.ropes = {read_folder_rope(json, config, 10000.0)};
  DeltaNetConfig net;
  net.key_heads = static_cast<int>(json.count("linear_num_key_heads", 1, kMostHeads, 16));
  net.value_heads = static_cast<int>(json.count("linear_num_value_heads", 1, kMostHeads, 32));
  net.key_dim = static_cast<int>(json.count("linear_key_head_dim", 1, kWidestHead, 128));
  net.value_dim = static_cast<int>(json.count("linear_value_head_dim", 1, kWidestHead, 128));
  net.taps = static_cast<int>(json.count("linear_conv_kernel_dim", 2, kMostTaps, 4));
  check_delta_net(json.file(), net);
  config.delta = net;
  read_mixers(json, config);
}

void read_shared_expert(const GgufFile& file, ModelConfig& config) {
  config.experts->shared =
      read_count(file, "expert_shared_feed_forward_length", 1, std::int64_t{1} << 20, config.hidden);
  config.experts->shared_gated = true;
}

void read_shared_expert(const JsonFields& json, ModelConfig& config) {
  config.experts->shared = json.count("shared_expert_intermediate_size", 1, std::int64_t{1} << 20);
  config.experts->shared_gated = true;
}

}  // namespace kvtide
