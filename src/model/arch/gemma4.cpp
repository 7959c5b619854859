// gemma4.cpp: Gemma 4 (text). What differs from Gemma 3: norms as they are stored; values are normed, too, and may be the
// keys before their norm; scores are not scaled; layers that see everything have wider heads, of which a part of the pairs
// turns; the last layers read the keys and values of earlier ones, and their feed-forward may be twice as wide. A token may
// give numbers to every layer (layer_inputs.h), experts may stand beside the feed-forward, logits are capped. Source: the
// published configurations of Gemma 4 (Google, 2026).
#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "kvtide/error.h"
#include "model/arch/architectures.h"
#include "model/arch/gemma4_layers.h"
#include "model/arch/tensor_names.h"
#include "model/config/gguf_config.h"

namespace kvtide::gemma4 {
namespace {

void read_gguf_experts(const GgufFile& file, ModelConfig& config) {
  if (read_count(file, "expert_count", 0, 1024, 0) > 0) add_experts(file.path(), read_experts(file), config);
}

// Which layers have a window, and the heads of those.
HeadsConfig read_kinds(const GgufFile& file, ModelConfig& config) {
  const auto pattern = file.get_ints("gemma4.attention.sliding_window_pattern");
  if (!pattern || pattern->size() != config.layers.size())
    throw Error(
        ErrorCode::bad_format,
        cat(file.path(), ": 'gemma4.attention.sliding_window_pattern' must have one entry for each of ",
            config.layers.size(), " layers"));
  const std::int64_t window = read_count(file, "attention.sliding_window", 1, kLong);
  HeadsConfig sliding = {config.heads, config.kv_heads, config.head_dim};
  sliding.head_dim =
      static_cast<int>(read_count(file, "attention.key_length_swa", 1, kMaxHeadDim, config.head_dim));
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if ((*pattern)[i] == 0) continue;
    config.layers[i].window = window;
    sliding.kv_heads = heads_of(config, static_cast<int>(i)).kv_heads;
  }
  for (LayerConfig& layer : config.layers)
    if (!layer.window && layer.kv_heads > 0) {
      config.kv_heads = layer.kv_heads;
      layer.kv_heads = 0;
    }
  return sliding;
}

RopeConfig read_sliding_rotation(const GgufFile& file, int head_dim) {
  RopeConfig rope;
  rope.base = read_real(file, "rope.freq_base_swa", 1.0, 1e12, kSlidingBase);
  rope.dims = static_cast<int>(read_count(file, "rope.dimension_count_swa", 2, kMaxHeadDim, head_dim));
  if (rope.dims > head_dim || rope.dims % 2 != 0)
    throw Error(ErrorCode::bad_format, cat(file.path(), ": rope.dimension_count_swa is ", rope.dims,
                                           "; it must be even and at most the head's ", head_dim));
  return rope;
}

void adjust(const GgufFile& file, ModelConfig& config) {
  set_common(config);
  const HeadsConfig sliding = read_kinds(file, config);
  if (file.find_tensor("rope_freqs.weight") == nullptr)
    throw Error(ErrorCode::bad_format,
                cat(file.path(), ": the tensor 'rope_freqs.weight' is missing; it says which pairs turn"));
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    config.layers[i].values_are_keys = file.find_tensor(cat("blk.", i, ".attn_v.weight")) == nullptr;
  config.ropes.push_back(read_sliding_rotation(file, sliding.head_dim));
  set_layers(file.path(), sliding,
             read_count(file, "attention.shared_kv_layers", 0,
                        static_cast<std::int64_t>(config.layers.size()) - 1, 0),
             config);
  config.layer_inputs = read_count(file, "embedding_length_per_layer_input", 0, kWide, 0);
  config.logit_cap = static_cast<float>(read_real(file, "final_logit_softcapping", 0.0, 1e6, 0.0));
  read_gguf_experts(file, config);
}

constexpr std::string_view kTypes[] = {"gemma4_text", "gemma4"};
constexpr std::string_view kPrefixes[] = {"model.", "model.language_model.", "language_model.model."};

constexpr TensorRule kOwnFolder[] = {
    {Role::attention_post_norm, "model.layers.*.post_attention_layernorm.weight"},
    {Role::feed_forward_norm, "model.layers.*.pre_feedforward_layernorm.weight"},
    {Role::feed_forward_post_norm, "model.layers.*.post_feedforward_layernorm.weight"},
    {Role::layer_input_embedding, "model.embed_tokens_per_layer.weight"},
    {Role::layer_input_projection, "model.per_layer_model_projection.weight"},
    {Role::layer_input_norm, "model.per_layer_projection_norm.weight"},
    {Role::layer_input_gate, "model.layers.*.per_layer_input_gate.weight"},
    {Role::layer_input_out, "model.layers.*.per_layer_projection.weight"},
    {Role::layer_input_post_norm, "model.layers.*.post_per_layer_input_norm.weight"},
    {Role::layer_scale, "model.layers.*.layer_scalar"},
    {Role::experts_norm, "model.layers.*.pre_feedforward_layernorm_2.weight"},
    {Role::experts_post_norm, "model.layers.*.post_feedforward_layernorm_2.weight"},
    {Role::beside_post_norm, "model.layers.*.post_feedforward_layernorm_1.weight"},
    {Role::router_scale, "model.layers.*.router.scale"},
    {Role::expert_scale, "model.layers.*.router.per_expert_scale"},
    {Role::router_out, "model.layers.*.router.proj.weight"},
    {.role = Role::expert_gate_up, .name = "model.layers.*.experts.gate_up_proj", .stacked = true},
    {.role = Role::expert_down, .name = "model.layers.*.experts.down_proj", .stacked = true},
};
constexpr auto kFolder = joined(kOwnFolder, kLlamaFolderTensors);

constexpr TensorRule kOwnGguf[] = {
    {Role::layer_input_embedding, "per_layer_token_embd.weight"},
    {Role::layer_input_projection, "per_layer_model_proj.weight"},
    {Role::layer_input_norm, "per_layer_proj_norm.weight"},
    {Role::layer_input_gate, "blk.*.inp_gate.weight"},
    {Role::layer_input_out, "blk.*.proj.weight"},
    {Role::layer_input_post_norm, "blk.*.post_norm.weight"},
    {Role::layer_scale, "blk.*.layer_output_scale.weight"},
    {Role::experts_norm, "blk.*.pre_ffw_norm_2.weight"},
    {Role::experts_post_norm, "blk.*.post_ffw_norm_2.weight"},
    {Role::beside_post_norm, "blk.*.post_ffw_norm_1.weight"},
    {Role::router_scale, "blk.*.ffn_gate_inp.scale"},
    {Role::expert_scale, "blk.*.ffn_down_exps.scale"},
    {.role = Role::expert_gate_up, .name = "blk.*.ffn_gate_up_exps.weight", .stacked = true},
};
constexpr auto kGguf = joined(kOwnGguf, joined(kGgufExperts, kGgufTensors));

}  // namespace
}  // namespace kvtide::gemma4

namespace kvtide {

const Architecture kGemma4{.name = "gemma4",
                           .adjust = &gemma4::adjust,
                           .gguf_tensors = gemma4::kGguf,
                           .model_types = gemma4::kTypes,
                           .read = &gemma4::read,
                           .folder_tensors = gemma4::kFolder,
                           .folder_prefixes = gemma4::kPrefixes,
                           .uneven = true};

}  // namespace kvtide
