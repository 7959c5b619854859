// nemotron_h.cpp: Nemotron-H, Nemotron Nano 2 and 3: a layer is one block only: Mamba-2 (state_space.h), attention without
// rotation, a feed-forward, or experts. Neither has a gate; both square what a ReLU lets through.
//
// Steps of the recurrence have no lower limit, as in the code that the models were published with and in llama.cpp
// (transformers holds them at time_step_min and above while it reads a text at once, and not while it writes).
// Source: "Nemotron-H" (NVIDIA, 2025).
#include <cmath>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "model/arch/architectures.h"
#include "model/arch/mamba_fields.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::nemotron_h {
namespace {

constexpr std::int64_t kWide = std::int64_t{1} << 20, kLong = std::int64_t{1} << 31;
constexpr double kShareEpsilon = 1e-20;

void set_common(ModelConfig& config) {
  config.gated = false;
  config.activation = Activation::squared_relu;
  config.ropes.resize(1);
  config.ropes[0].still = true;
}

void set_routing(ExpertsConfig& experts) {
  experts.sigmoid = true;
  experts.balanced = true;
  experts.sum_epsilon = static_cast<float>(kShareEpsilon);
}

// Layers with KV heads have attention, those with a feed-forward have that, the others the recurrence.
void adjust(const GgufFile& file, ModelConfig& config) {
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  config.layers.resize(
      static_cast<std::size_t>(layers - read_count(file, "nextn_predict_layers", 0, layers - 1, 0)));
  set_common(config);
  for (LayerConfig& layer : config.layers)
    if (layer.mixer != Mixer::attention)
      layer.mixer = layer.feed_forward ? Mixer::none : Mixer::state_space;
    else if (layer.feed_forward)
      throw Error(ErrorCode::unsupported,
                  cat(file.path(), ": a layer with attention has a feed-forward, too; a layer of ",
                      config.architecture, " is one or the other"));
  read_state_space(file, config);
}

void adjust_routed(const GgufFile& file, ModelConfig& config) {
  adjust(file, config);
  if (read_count(file, "moe_latent_size", 0, kWide, 0) != 0)
    throw Error(ErrorCode::unsupported,
                cat(file.path(), ": experts that work on latents (moe_latent_size) are not supported"));
  config.experts = read_experts(file, true);
  ExpertsConfig& experts = *config.experts;
  experts.shared = read_count(file, "expert_shared_feed_forward_length", 0, kWide, 0);
  experts.share_scale = static_cast<float>(read_real(file, "expert_weights_scale", 1e-3, 1e3, 1.0));
  experts.shares_sum_to_1 = file.get_bool(cat(config.architecture, ".expert_weights_norm")).value_or(false);
  experts.groups = static_cast<int>(read_count(file, "expert_group_count", 1, 1024, 1));
  experts.groups_chosen =
      static_cast<int>(read_count(file, "expert_group_used_count", 1, 1024, experts.groups));
  check_experts(file.path(), experts);
  set_routing(experts);
}

// 'layers_block_type', or one letter for each layer.
std::vector<std::string> layer_types(const JsonFields& json) {
  for (const char* key : {"layers_block_type", "layer_types"})
    if (json.has(key)) return json.texts(key);
  std::vector<std::string> types;
  for (const char letter : json.text("hybrid_override_pattern").value_or("")) types.emplace_back(1, letter);
  if (types.empty())
    json.refuse(ErrorCode::bad_format, "neither 'layers_block_type' nor 'hybrid_override_pattern'");
  return types;
}

void read_layers(const JsonFields& json, ModelConfig& config) {
  for (const std::string& type : layer_types(json)) {
    LayerConfig layer;
    layer.feed_forward = type == "-" || type == "mlp" || type == "E" || type == "moe";
    layer.routed = type == "E" || type == "moe";
    if (type == "M" || type == "mamba" || type == "linear_attention")
      layer.mixer = Mixer::state_space;
    else if (layer.feed_forward)
      layer.mixer = Mixer::none;
    else if (type != "*" && type != "attention" && type != "full_attention")
      json.refuse(ErrorCode::unsupported,
                  cat("layer ", config.layers.size(), " is of the type ", quoted(type),
                      "; kvtide knows linear_attention, full_attention, mlp and moe of nemotron_h"));
    config.layers.push_back(layer);
  }
  if (config.layers.empty() || config.layers.size() > 1024)
    json.refuse(ErrorCode::bad_format, cat(config.layers.size(), " layers; there must be 1 to 1024"));
}

void read_routing(const JsonFields& json, ModelConfig& config) {
  if (json.has("moe_latent_size"))
    json.refuse(ErrorCode::unsupported, "'moe_latent_size': experts that work on latents are not supported");
  require_absent_or(json, "mlp_bias", false);
  config.experts = read_experts(json, "n_routed_experts");
  ExpertsConfig& experts = *config.experts;
  experts.shared = json.count("moe_shared_expert_intermediate_size", 1, kWide);
  experts.shares_sum_to_1 = json.flag("norm_topk_prob", true);
  experts.share_scale = static_cast<float>(json.real("routed_scaling_factor", 1e-3, 1e3, 1.0));
  experts.groups = static_cast<int>(json.count("n_group", 1, 1024, 1));
  experts.groups_chosen = static_cast<int>(json.count("topk_group", 1, 1024, 1));
  check_experts(json.file(), experts);
  set_routing(experts);
}

void read_heads(const JsonFields& json, ModelConfig& config) {
  config.heads = static_cast<int>(json.count("num_attention_heads", 1, 4096, 32));
  config.kv_heads = static_cast<int>(json.count("num_key_value_heads", 1, 4096, 8));
  check_heads(json.file(), config);
  config.head_dim = static_cast<int>(
      json.count("head_dim", 2, kMaxHeadDim, json.count("attention_head_dim", 2, kMaxHeadDim, 128)));
  if (config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0)
    json.refuse(ErrorCode::unsupported,
                cat("'head_dim' is ", config.head_dim, "; it must be even and at most ", kMaxHeadDim));
  config.rope_dims = config.head_dim;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
}

constexpr StateSpaceKeys kKeys = {.heads = "mamba_num_heads",
                                  .head_dim = "mamba_head_dim",
                                  .state = "ssm_state_size",
                                  .groups = "n_groups",
                                  .taps = "conv_kernel",
                                  .biased = "use_bias",
                                  .conv_biased = "use_conv_bias"};

void read(const JsonFields& json, ModelConfig& config) {
  config.context_length = json.count("max_position_embeddings", 1, kLong, 4096);
  config.width = json.count("hidden_size", 1, kWide);
  config.hidden = json.count("intermediate_size", 1, kWide);
  config.norm_epsilon = static_cast<float>(json.real("layer_norm_epsilon", 1e-12, 1e-1, 1e-5));
  config.vocab = json.count("vocab_size", 1, std::int64_t{1} << 24);
  config.tied_head = json.flag("tie_word_embeddings", false);
  if (json.text("mlp_hidden_act").value_or("relu2") != "relu2")
    json.refuse(ErrorCode::unsupported, "'mlp_hidden_act' must be relu2");
  if (json.text("mamba_hidden_act").value_or("silu") != "silu")
    json.refuse(ErrorCode::unsupported, "'mamba_hidden_act' must be silu");
  read_heads(json, config);
  read_layers(json, config);
  set_common(config);
  bool routed = false, recurrent = false;
  for (const LayerConfig& layer : config.layers) {
    routed = routed || layer.routed;
    recurrent = recurrent || layer.mixer == Mixer::state_space;
  }
  if (routed) read_routing(json, config);
  if (recurrent) read_state_space(json, kKeys, config);
}

constexpr std::string_view kTypes[] = {"nemotron_h"};
constexpr std::string_view kPrefixes[] = {"backbone.", "model."};

constexpr TensorRule kOwnFolder[] = {
    {Role::feed_forward_norm, "backbone.layers.*.norm.weight"},
    {Role::query, "backbone.layers.*.mixer.q_proj.weight"},
    {Role::key, "backbone.layers.*.mixer.k_proj.weight"},
    {Role::value, "backbone.layers.*.mixer.v_proj.weight"},
    {Role::attention_output, "backbone.layers.*.mixer.o_proj.weight"},
    {Role::query_bias, "backbone.layers.*.mixer.q_proj.bias"},
    {Role::key_bias, "backbone.layers.*.mixer.k_proj.bias"},
    {Role::value_bias, "backbone.layers.*.mixer.v_proj.bias"},
    {Role::attention_output_bias, "backbone.layers.*.mixer.o_proj.bias"},
    {Role::up, "backbone.layers.*.mixer.up_proj.weight"},
    {Role::up_bias, "backbone.layers.*.mixer.up_proj.bias"},
    {Role::down, "backbone.layers.*.mixer.down_proj.weight"},
    {Role::down_bias, "backbone.layers.*.mixer.down_proj.bias"},
    {Role::router_out, "backbone.layers.*.mixer.gate.weight"},
    {Role::router_balance, "backbone.layers.*.mixer.gate.e_score_correction_bias"},
    {Role::expert_up, "backbone.layers.*.mixer.experts.#.up_proj.weight"},
    {Role::expert_down, "backbone.layers.*.mixer.experts.#.down_proj.weight"},
    {Role::shared_up, "backbone.layers.*.mixer.shared_experts.up_proj.weight"},
    {Role::shared_down, "backbone.layers.*.mixer.shared_experts.down_proj.weight"},
};
constexpr auto kFolder = joined(kOwnFolder, kBackboneStateSpace);

constexpr TensorRule kOwnGguf[] = {
    {Role::feed_forward_norm, "blk.*.attn_norm.weight"},
    {Role::attention_output_bias, "blk.*.attn_output.bias"},
    {Role::up_bias, "blk.*.ffn_up.bias"},
    {Role::down_bias, "blk.*.ffn_down.bias"},
    {Role::shared_up, "blk.*.ffn_up_shexp.weight"},
    {Role::shared_down, "blk.*.ffn_down_shexp.weight"},
};
constexpr auto kGguf = joined(kGgufStateSpace, joined(kOwnGguf, joined(kGgufExperts, kGgufTensors)));

}  // namespace
}  // namespace kvtide::nemotron_h

namespace kvtide {

const Architecture kNemotronH{.name = "nemotron_h",
                              .adjust = &nemotron_h::adjust,
                              .gguf_tensors = nemotron_h::kGguf,
                              .model_types = nemotron_h::kTypes,
                              .read = &nemotron_h::read,
                              .folder_tensors = nemotron_h::kFolder,
                              .folder_prefixes = nemotron_h::kPrefixes,
                              .uneven = true,
                              .single_blocks = true};
const Architecture kNemotronHMoe{.name = "nemotron_h_moe",
                                 .adjust = &nemotron_h::adjust_routed,
                                 .gguf_tensors = nemotron_h::kGguf,
                                 .model_types = {},
                                 .read = &nemotron_h::read,
                                 .folder_tensors = {},
                                 .uneven = true,
                                 .single_blocks = true};

}  // namespace kvtide
