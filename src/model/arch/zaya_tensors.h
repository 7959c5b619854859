// zaya_tensors.h: the names of ZAYA1's tensors, of both ages.
//
// Today's folders number blocks of an attention and its experts. Older ones number halves: 2 b is the
// attention of block b, 2 b + 1 its experts; a half's res_scale is applied where it begins, to what the half
// before it put out, so that of half 2 b + 2 belongs to the experts of block b, and the last of all stands
// apart. The two cannot be mixed: both know a layers.2.self_attn.o_proj.weight, of different blocks.
#pragma once

#include "model/config/tensor_rules.h"

namespace kvtide {

constexpr TensorRule half(Role role, std::string_view name, int offset) {
  return {.role = role, .name = name, .step = 2, .offset = offset};
}
constexpr TensorRule last(Role role, std::string_view name) {
  return {.role = role, .name = name, .last_only = true};
}
constexpr TensorRule stacked(Role role, std::string_view name) {
  return {.role = role, .name = name, .stacked = true};
}

inline constexpr TensorRule kZayaTensors[] = {
    {Role::embedding, "model.embed_tokens.weight"},
    {Role::head, "lm_head.weight"},
    {Role::input_scale, "model.input_hidden_states_scale"},
    {Role::input_bias, "model.input_hidden_states_bias"},
    {Role::final_norm, "model.norm.weight"},
    {Role::attention_norm, "model.layers.*.input_layernorm.weight"},
    {Role::query, "model.layers.*.self_attn.qkv_proj.q_proj.weight"},
    {Role::key, "model.layers.*.self_attn.qkv_proj.k_proj.weight"},
    {Role::value, "model.layers.*.self_attn.qkv_proj.v_proj_current.weight"},
    {Role::value_delayed, "model.layers.*.self_attn.qkv_proj.v_proj_delayed.weight"},
    {Role::conv_depthwise, "model.layers.*.self_attn.qkv_proj.conv_qk_depthwise.weight"},
    {Role::conv_depthwise_bias, "model.layers.*.self_attn.qkv_proj.conv_qk_depthwise.bias"},
    {Role::conv_grouped, "model.layers.*.self_attn.qkv_proj.conv_qk_grouped.weight"},
    {Role::conv_grouped_bias, "model.layers.*.self_attn.qkv_proj.conv_qk_grouped.bias"},
    {Role::key_temperature, "model.layers.*.self_attn.qk_norm.temp"},
    {Role::attention_output, "model.layers.*.self_attn.o_proj.weight"},
    {Role::attention_output_scale, "model.layers.*.post_attention_residual_scale.hidden_states_scale"},
    {Role::attention_output_offset, "model.layers.*.post_attention_residual_scale.hidden_states_bias"},
    {Role::attention_residual_scale, "model.layers.*.post_attention_residual_scale.residual_scale"},
    {Role::attention_residual_offset, "model.layers.*.post_attention_residual_scale.residual_bias"},
    {Role::feed_forward_norm, "model.layers.*.post_attention_layernorm.weight"},
    {Role::router_down, "model.layers.*.mlp.gate.down_proj.weight"},
    {Role::router_down_bias, "model.layers.*.mlp.gate.down_proj.bias"},
    {Role::router_carry, "model.layers.*.mlp.gate.router_states_scale"},
    {Role::router_norm, "model.layers.*.mlp.gate.router_mlp.norm.weight"},
    {Role::router_first, "model.layers.*.mlp.gate.router_mlp.fc1.weight"},
    {Role::router_first_bias, "model.layers.*.mlp.gate.router_mlp.fc1.bias"},
    {Role::router_second, "model.layers.*.mlp.gate.router_mlp.fc2.weight"},
    {Role::router_second_bias, "model.layers.*.mlp.gate.router_mlp.fc2.bias"},
    {Role::router_out, "model.layers.*.mlp.gate.router_mlp.out_proj.weight"},
    {Role::router_balance, "model.layers.*.mlp.gate.balancing_biases"},
    stacked(Role::expert_gate_up, "model.layers.*.mlp.experts.gate_up_proj"),
    stacked(Role::expert_down, "model.layers.*.mlp.experts.down_proj"),
    {Role::feed_forward_output_scale, "model.layers.*.post_mlp_residual_scale.hidden_states_scale"},
    {Role::feed_forward_output_offset, "model.layers.*.post_mlp_residual_scale.hidden_states_bias"},
    {Role::feed_forward_residual_scale, "model.layers.*.post_mlp_residual_scale.residual_scale"},
    {Role::feed_forward_residual_offset, "model.layers.*.post_mlp_residual_scale.residual_bias"},
};

inline constexpr TensorRule kZayaHalves[] = {
    {Role::embedding, "model.embed_tokens.weight"},
    {Role::head, "lm_head.weight"},
    {Role::input_scale, "model.layers.0.res_scale.hidden_states_scale"},
    {Role::input_bias, "model.layers.0.res_scale.hidden_states_bias"},
    {Role::final_norm, "model.final_norm.weight"},
    half(Role::attention_norm, "model.layers.*.input_norm.weight", 0),
    half(Role::query, "model.layers.*.self_attn.qkv.linear_q.weight", 0),
    half(Role::key, "model.layers.*.self_attn.qkv.linear_k.weight", 0),
    half(Role::value, "model.layers.*.self_attn.qkv.val_proj1.weight", 0),
    half(Role::value_delayed, "model.layers.*.self_attn.qkv.val_proj2.weight", 0),
    half(Role::conv_depthwise, "model.layers.*.self_attn.qkv.conv_qk.0.weight", 0),
    half(Role::conv_depthwise_bias, "model.layers.*.self_attn.qkv.conv_qk.0.bias", 0),
    half(Role::conv_grouped, "model.layers.*.self_attn.qkv.conv_qk.1.weight", 0),
    half(Role::conv_grouped_bias, "model.layers.*.self_attn.qkv.conv_qk.1.bias", 0),
    half(Role::key_temperature, "model.layers.*.self_attn.qkv.temp", 0),
    half(Role::attention_output, "model.layers.*.self_attn.o_proj.weight", 0),
    half(Role::attention_output_scale, "model.layers.*.res_scale.hidden_states_scale", 1),
    half(Role::attention_output_offset, "model.layers.*.res_scale.hidden_states_bias", 1),
    half(Role::attention_residual_scale, "model.layers.*.res_scale.residual_scale", 1),
    half(Role::attention_residual_offset, "model.layers.*.res_scale.residual_bias", 1),
    half(Role::feed_forward_norm, "model.layers.*.input_norm.weight", 1),
    half(Role::router_down, "model.layers.*.zaya_block.router.down_proj.weight", 1),
    half(Role::router_down_bias, "model.layers.*.zaya_block.router.down_proj.bias", 1),
    half(Role::router_carry, "model.layers.*.zaya_block.router.router_states_scale", 1),
    half(Role::router_norm, "model.layers.*.zaya_block.router.rmsnorm_eda.weight", 1),
    half(Role::router_first, "model.layers.*.zaya_block.router.router_mlp.0.weight", 1),
    half(Role::router_first_bias, "model.layers.*.zaya_block.router.router_mlp.0.bias", 1),
    half(Role::router_second, "model.layers.*.zaya_block.router.router_mlp.2.weight", 1),
    half(Role::router_second_bias, "model.layers.*.zaya_block.router.router_mlp.2.bias", 1),
    half(Role::router_out, "model.layers.*.zaya_block.router.router_mlp.4.weight", 1),
    half(Role::router_balance, "model.layers.*.zaya_block.router.balancing_biases", 1),
    half(Role::expert_gate_up, "model.layers.*.zaya_block.experts.local_experts.#.linear_fc1.weight", 1),
    half(Role::expert_down, "model.layers.*.zaya_block.experts.local_experts.#.linear_fc2.weight", 1),
    half(Role::feed_forward_output_scale, "model.layers.*.res_scale.hidden_states_scale", 2),
    half(Role::feed_forward_output_offset, "model.layers.*.res_scale.hidden_states_bias", 2),
    half(Role::feed_forward_residual_scale, "model.layers.*.res_scale.residual_scale", 2),
    half(Role::feed_forward_residual_offset, "model.layers.*.res_scale.residual_bias", 2),
    last(Role::feed_forward_output_scale, "model.res_scale.hidden_states_scale"),
    last(Role::feed_forward_output_offset, "model.res_scale.hidden_states_bias"),
    last(Role::feed_forward_residual_scale, "model.res_scale.residual_scale"),
    last(Role::feed_forward_residual_offset, "model.res_scale.residual_bias"),
};

}  // namespace kvtide
