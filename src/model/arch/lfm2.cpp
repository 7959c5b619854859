// lfm2.cpp: LFM2, with and without experts. What differs from Llama: most layers have a gated short convolution
// instead of attention (short_conv.h); queries and keys are normed head by head; of the models with experts the
// first layers have a single feed-forward, and the router's scores go through a sigmoid. In GGUF files layers
// without attention are those with 0 KV heads.
#include <algorithm>

#include "base/text.h"
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::lfm2 {
namespace {

constexpr std::int64_t kMostTaps = 16;
constexpr float kSumEpsilon = 1e-6f;

void set_routing(ModelConfig& config, std::int64_t dense) {
  config.experts->sigmoid = true;
  config.experts->sum_epsilon = kSumEpsilon;
  for (std::int64_t i = 0; i < dense; ++i) config.layers[static_cast<std::size_t>(i)].routed = false;
}

void adjust(const GgufFile& file, ModelConfig& config) {
  config.head_norms = true;
  config.conv_taps = static_cast<int>(read_count(file, "shortconv.l_cache", 2, kMostTaps));
}

void adjust_routed(const GgufFile& file, ModelConfig& config) {
  adjust(file, config);
  config.experts = read_experts(file);
  config.experts->shares_sum_to_1 = true;
  config.experts->balanced = true;
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  set_routing(config, read_count(file, "leading_dense_block_count", 0, layers));
}

void read_layer_types(const JsonFields& json, ModelConfig& config) {
  const auto types = json.texts("layer_types");
  if (types.empty() && json.has("full_attn_idxs")) {
    const auto layers = static_cast<std::int64_t>(config.layers.size());
    for (LayerConfig& layer : config.layers) layer.mixer = Mixer::short_convolution;
    for (const auto i : json.numbers<std::vector<std::int64_t>>("full_attn_idxs", 0, layers - 1))
      config.layers[static_cast<std::size_t>(i)].mixer = Mixer::attention;
  } else if (!types.empty() && types.size() != config.layers.size()) {
    json.refuse(ErrorCode::bad_format,
                cat("'layer_types' has ", types.size(), " entries for ", config.layers.size(), " layers"));
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "conv")
      config.layers[i].mixer = Mixer::short_convolution;
    else if (types[i] != "full_attention")
      json.refuse(ErrorCode::unsupported, cat("layer ", i, " is of the type ", quoted(types[i]),
                                              "; kvtide knows full_attention and conv of lfm2"));
  }
  if (attention_layers(config).empty())
    json.refuse(ErrorCode::unsupported, "no layer has attention; at least one must");
}

// What block_auto_adjust_ff_dim makes of the width that is written down.
std::int64_t adjusted(const JsonFields& json, std::int64_t hidden) {
  if (!json.flag("block_auto_adjust_ff_dim", true)) return hidden;
  const auto scaled =
      static_cast<std::int64_t>(json.real("block_ffn_dim_multiplier", 1e-3, 1e3, 1.0) *
                                static_cast<double>(static_cast<std::int64_t>(2 * hidden / 3)));
  const auto multiple = json.count("block_multiple_of", 1, std::int64_t{1} << 20, 256);
  return (scaled + multiple - 1) / multiple * multiple;
}

void read(const JsonFields& json, ModelConfig& config) {
  // Older files have their own word for it, which wins.
  const bool older = json.has("block_ff_dim");
  read_llama_like(json, config, older ? "block_ff_dim" : "intermediate_size");
  config.norm_epsilon = static_cast<float>(json.real("norm_eps", 1e-12, 1e-1, 1e-5));
  config.tied_head = json.flag("tie_embedding", json.flag("tie_word_embeddings", true));
  config.head_norms = true;
  config.ropes = {read_folder_rope(json, config, 1e6)};
  config.conv_taps = static_cast<int>(json.count("conv_L_cache", 2, kMostTaps, 3));
  config.conv_biased = json.flag("conv_bias", false);
  read_layer_types(json, config);
  if (json.text("model_type") == "lfm2") {
    config.hidden = adjusted(json, config.hidden);
    return;
  }
  config.experts = read_experts(json, "num_experts");
  config.experts->shares_sum_to_1 = json.flag("norm_topk_prob", true);
  config.experts->balanced = json.flag("use_expert_bias", true);
  config.experts->share_scale = static_cast<float>(json.real("routed_scaling_factor", 1e-3, 1e3, 1.0));
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  set_routing(config, json.count("num_dense_layers", 0, layers, std::min<std::int64_t>(2, layers)));
}

constexpr std::string_view kTypes[] = {"lfm2"}, kRoutedTypes[] = {"lfm2_moe"};

constexpr TensorRule kFolder[] = {
    {Role::embedding, "model.embed_tokens.weight"},
    {Role::head, "lm_head.weight"},
    {Role::final_norm, "model.embedding_norm.weight"},
    {Role::attention_norm, "model.layers.*.operator_norm.weight"},
    {Role::query, "model.layers.*.self_attn.q_proj.weight"},
    {Role::key, "model.layers.*.self_attn.k_proj.weight"},
    {Role::value, "model.layers.*.self_attn.v_proj.weight"},
    {Role::query_norm, "model.layers.*.self_attn.q_layernorm.weight"},
    {Role::key_norm, "model.layers.*.self_attn.k_layernorm.weight"},
    {Role::attention_output, "model.layers.*.self_attn.out_proj.weight"},
    {Role::short_conv_in, "model.layers.*.conv.in_proj.weight"},
    {Role::short_conv_in_bias, "model.layers.*.conv.in_proj.bias"},
    {Role::short_conv, "model.layers.*.conv.conv.weight"},
    {Role::short_conv_bias, "model.layers.*.conv.conv.bias"},
    {Role::short_conv_out, "model.layers.*.conv.out_proj.weight"},
    {Role::short_conv_out_bias, "model.layers.*.conv.out_proj.bias"},
    {Role::feed_forward_norm, "model.layers.*.ffn_norm.weight"},
    {Role::gate, "model.layers.*.feed_forward.w1.weight"},
    {Role::up, "model.layers.*.feed_forward.w3.weight"},
    {Role::down, "model.layers.*.feed_forward.w2.weight"},
    {Role::router_out, "model.layers.*.feed_forward.gate.weight"},
    {Role::router_balance, "model.layers.*.feed_forward.expert_bias"},
    {Role::expert_gate, "model.layers.*.feed_forward.experts.#.w1.weight"},
    {Role::expert_up, "model.layers.*.feed_forward.experts.#.w3.weight"},
    {Role::expert_down, "model.layers.*.feed_forward.experts.#.w2.weight"},
};

constexpr TensorRule kOwnGguf[] = {
    {Role::final_norm, "token_embd_norm.weight"},
    {Role::short_conv_in, "blk.*.shortconv.in_proj.weight"},
    {Role::short_conv, "blk.*.shortconv.conv.weight"},
    {Role::short_conv_out, "blk.*.shortconv.out_proj.weight"},
};
constexpr auto kGguf = joined(kOwnGguf, kGgufTensors);
constexpr auto kRoutedGguf = joined(kGgufExperts, kGguf);

}  // namespace
}  // namespace kvtide::lfm2

namespace kvtide {

const Architecture kLfm2{"lfm2",       &lfm2::adjust, lfm2::kGguf,  //
                         lfm2::kTypes, &lfm2::read,   lfm2::kFolder};
const Architecture kLfm2Moe{"lfm2moe",          &lfm2::adjust_routed, lfm2::kRoutedGguf,
                            lfm2::kRoutedTypes, &lfm2::read,          lfm2::kFolder};

}  // namespace kvtide
