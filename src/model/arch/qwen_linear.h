// qwen_linear.h: what Qwen 3 Next and Qwen 3.5 share: gated delta nets in most layers, gated attention in the others,
// a quarter of every head rotated, norms whose weights folders keep without their 1.
#pragma once

#include <span>

#include "base/json/json_fields.h"
#include "formats/gguf.h"
#include "model/arch/tensor_names.h"
#include "model/config/config.h"

namespace kvtide {

void read_qwen_linear(const GgufFile& file, ModelConfig& config);
// hidden_key: of the width inside the feed-forward.
void read_qwen_linear(const JsonFields& json, ModelConfig& config, const char* hidden_key);

// An expert that every token passes, its output scaled by a sigmoid.
void read_shared_expert(const GgufFile& file, ModelConfig& config);
void read_shared_expert(const JsonFields& json, ModelConfig& config);

inline constexpr TensorRule kQwenLinearFolder[] = {
    {.role = Role::final_norm, .name = "model.norm.weight", .plus = 1.0f},
    {.role = Role::attention_norm, .name = "model.layers.*.input_layernorm.weight", .plus = 1.0f},
    {.role = Role::feed_forward_norm, .name = "model.layers.*.post_attention_layernorm.weight", .plus = 1.0f},
    {.role = Role::query_norm, .name = "model.layers.*.self_attn.q_norm.weight", .plus = 1.0f},
    {.role = Role::key_norm, .name = "model.layers.*.self_attn.k_norm.weight", .plus = 1.0f},
    {Role::delta_qkvz, "model.layers.*.linear_attn.in_proj_qkvz.weight"},
    {Role::delta_ba, "model.layers.*.linear_attn.in_proj_ba.weight"},
    {Role::delta_qkv, "model.layers.*.linear_attn.in_proj_qkv.weight"},
    {Role::delta_z, "model.layers.*.linear_attn.in_proj_z.weight"},
    {Role::delta_beta, "model.layers.*.linear_attn.in_proj_b.weight"},
    {Role::delta_alpha, "model.layers.*.linear_attn.in_proj_a.weight"},
    {Role::delta_conv, "model.layers.*.linear_attn.conv1d.weight"},
    {Role::delta_time_bias, "model.layers.*.linear_attn.dt_bias"},
    {Role::delta_log_decay, "model.layers.*.linear_attn.A_log"},
    {Role::delta_norm, "model.layers.*.linear_attn.norm.weight"},
    {Role::delta_out, "model.layers.*.linear_attn.out_proj.weight"},
    {Role::router_out, "model.layers.*.mlp.gate.weight"},
    {.role = Role::expert_gate_up, .name = "model.layers.*.mlp.experts.gate_up_proj", .stacked = true},
    {.role = Role::expert_down, .name = "model.layers.*.mlp.experts.down_proj", .stacked = true},
    {Role::expert_gate, "model.layers.*.mlp.experts.#.gate_proj.weight"},
    {Role::expert_up, "model.layers.*.mlp.experts.#.up_proj.weight"},
    {Role::expert_down, "model.layers.*.mlp.experts.#.down_proj.weight"},
    {Role::shared_share, "model.layers.*.mlp.shared_expert_gate.weight"},
    {Role::shared_gate, "model.layers.*.mlp.shared_expert.gate_proj.weight"},
    {Role::shared_up, "model.layers.*.mlp.shared_expert.up_proj.weight"},
    {Role::shared_down, "model.layers.*.mlp.shared_expert.down_proj.weight"},
};

inline constexpr TensorRule kQwenLinearGguf[] = {
    {Role::feed_forward_norm, "blk.*.post_attention_norm.weight"},
    {Role::delta_qkvz, "blk.*.ssm_in.weight"},  // of older files
    {Role::delta_ba, "blk.*.ssm_ba.weight"},
    {Role::delta_qkv, "blk.*.attn_qkv.weight"},
    {Role::delta_z, "blk.*.attn_gate.weight"},
    {Role::delta_beta, "blk.*.ssm_beta.weight"},
    {Role::delta_alpha, "blk.*.ssm_alpha.weight"},
    {Role::delta_conv, "blk.*.ssm_conv1d.weight"},
    {Role::delta_time_bias, "blk.*.ssm_dt.bias"},
    {Role::delta_decay, "blk.*.ssm_a"},
    {Role::delta_norm, "blk.*.ssm_norm.weight"},
    {Role::delta_out, "blk.*.ssm_out.weight"},
    {.role = Role::expert_gate_up, .name = "blk.*.ffn_gate_up_exps.weight", .stacked = true},
    {Role::shared_share, "blk.*.ffn_gate_inp_shexp.weight"},
    {Role::shared_gate, "blk.*.ffn_gate_shexp.weight"},
    {Role::shared_up, "blk.*.ffn_up_shexp.weight"},
    {Role::shared_down, "blk.*.ffn_down_shexp.weight"},
};

inline constexpr auto kQwenLinearFolderTensors = joined(kQwenLinearFolder, kLlamaFolderTensors);
inline constexpr auto kQwenLinearGgufTensors = joined(kQwenLinearGguf, joined(kGgufExperts, kGgufTensors));

}  // namespace kvtide
