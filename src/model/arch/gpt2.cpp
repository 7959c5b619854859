// gpt2.cpp: GPT-2 and what was trained in its shape. What differs: positions are learned and added to the
// embedding, norms take the mean off and have biases, every matrix has a bias, the feed-forward is not gated,
// queries, keys and values are one tensor, and folders keep matrices as inputs times outputs. Positions
// cannot be shifted. Source: Radford et al. 2019.
#include <cmath>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "model/arch/architectures.h"
#include "model/config/folder_config.h"

namespace kvtide::gpt2 {
namespace {

void set_common(ModelConfig& config) {
  config.norm = NormKind::layer;
  config.gated = false;
  config.activation = Activation::gelu;
  config.learned_positions = true;
  config.rope_dims = 0;
  config.ropes.resize(1);
}

void adjust(const GgufFile&, ModelConfig& config) { set_common(config); }

void read(const JsonFields& json, ModelConfig& config) {
  constexpr std::int64_t kWide = std::int64_t{1} << 20;
  set_common(config);
  config.context_length = json.count("n_positions", 1, kWide * 16);
  config.width = json.count("n_embd", 1, kWide);
  config.hidden = json.count("n_inner", 1, kWide * 4, 4 * config.width);
  config.heads = static_cast<int>(json.count("n_head", 1, 4096));
  config.kv_heads = config.heads;
  if (config.width % config.heads != 0)
    json.refuse(ErrorCode::bad_format,
                cat("'n_embd' is ", config.width, ", which ", config.heads, " heads do not divide"));
  if (config.width / config.heads > kMaxHeadDim)
    json.refuse(ErrorCode::unsupported,
                cat("heads of ", config.width / config.heads, " are wider than ", kMaxHeadDim));
  config.head_dim = static_cast<int>(config.width / config.heads);
  config.norm_epsilon = static_cast<float>(json.real("layer_norm_epsilon", 1e-12, 1e-1, 1e-5));
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.layers.resize(static_cast<std::size_t>(json.count("n_layer", 1, 1024)));
  config.vocab = json.count("vocab_size", 1, std::int64_t{1} << 24);
  config.tied_head = json.flag("tie_word_embeddings", true);
  const std::string activation = json.text("activation_function").value_or("gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    json.refuse(ErrorCode::unsupported,
                cat("'activation_function' is ", quoted(activation), "; gelu_new is supported"));
  require_absent_or(json, "scale_attn_weights", true);
  require_absent_or(json, "scale_attn_by_inverse_layer_idx", false);
  require_absent_or(json, "add_cross_attention", false);
}

constexpr std::string_view kTypes[] = {"gpt2"};
constexpr std::string_view kPrefixes[] = {"transformer.", ""};

constexpr TensorRule kFolderTensors[] = {
    {Role::embedding, "transformer.wte.weight"},
    {Role::positions, "transformer.wpe.weight"},
    {Role::head, "lm_head.weight"},
    {Role::final_norm, "transformer.ln_f.weight"},
    {Role::final_norm_bias, "transformer.ln_f.bias"},
    {Role::attention_norm, "transformer.h.*.ln_1.weight"},
    {Role::attention_norm_bias, "transformer.h.*.ln_1.bias"},
    {Role::query, "transformer.h.*.attn.c_attn.weight", true, true},
    {Role::key, "transformer.h.*.attn.c_attn.weight", true, true},
    {Role::value, "transformer.h.*.attn.c_attn.weight", true, true},
    {Role::query_bias, "transformer.h.*.attn.c_attn.bias", true},
    {Role::key_bias, "transformer.h.*.attn.c_attn.bias", true},
    {Role::value_bias, "transformer.h.*.attn.c_attn.bias", true},
    {Role::attention_output, "transformer.h.*.attn.c_proj.weight", false, true},
    {Role::attention_output_bias, "transformer.h.*.attn.c_proj.bias"},
    {Role::feed_forward_norm, "transformer.h.*.ln_2.weight"},
    {Role::feed_forward_norm_bias, "transformer.h.*.ln_2.bias"},
    {Role::up, "transformer.h.*.mlp.c_fc.weight", false, true},
    {Role::up_bias, "transformer.h.*.mlp.c_fc.bias"},
    {Role::down, "transformer.h.*.mlp.c_proj.weight", false, true},
    {Role::down_bias, "transformer.h.*.mlp.c_proj.bias"},
};

constexpr TensorRule kGpt2GgufTensors[] = {
    {Role::embedding, "token_embd.weight"},
    {Role::positions, "position_embd.weight"},
    {Role::head, "output.weight"},
    {Role::final_norm, "output_norm.weight"},
    {Role::final_norm_bias, "output_norm.bias"},
    {Role::attention_norm, "blk.*.attn_norm.weight"},
    {Role::attention_norm_bias, "blk.*.attn_norm.bias"},
    {Role::query, "blk.*.attn_qkv.weight", true},
    {Role::key, "blk.*.attn_qkv.weight", true},
    {Role::value, "blk.*.attn_qkv.weight", true},
    {Role::query_bias, "blk.*.attn_qkv.bias", true},
    {Role::key_bias, "blk.*.attn_qkv.bias", true},
    {Role::value_bias, "blk.*.attn_qkv.bias", true},
    {Role::attention_output, "blk.*.attn_output.weight"},
    {Role::attention_output_bias, "blk.*.attn_output.bias"},
    {Role::feed_forward_norm, "blk.*.ffn_norm.weight"},
    {Role::feed_forward_norm_bias, "blk.*.ffn_norm.bias"},
    {Role::up, "blk.*.ffn_up.weight"},
    {Role::up_bias, "blk.*.ffn_up.bias"},
    {Role::down, "blk.*.ffn_down.weight"},
    {Role::down_bias, "blk.*.ffn_down.bias"},
};

}  // namespace
}  // namespace kvtide::gpt2

namespace kvtide {

const Architecture kGpt2{"gpt2",      &gpt2::adjust,        gpt2::kGpt2GgufTensors, gpt2::kTypes,
                         &gpt2::read, gpt2::kFolderTensors, gpt2::kPrefixes};

}  // namespace kvtide
