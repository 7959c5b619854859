// tensor_names.h: the names that most architectures share: those of GGUF files, and those of Llama's folders.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "model/config/tensor_rules.h"

namespace kvtide {

// What an architecture has of its own, and then what it shares with others: rules that stand first are tried
// first.
template <std::size_t A, std::size_t B>
constexpr std::array<TensorRule, A + B> joined(const TensorRule (&own)[A], const TensorRule (&shared)[B]) {
  std::array<TensorRule, A + B> all{};
  std::copy(own, own + A, all.begin());
  std::copy(shared, shared + B, all.begin() + A);
  return all;
}

template <std::size_t A, std::size_t B>
constexpr std::array<TensorRule, A + B> joined(const TensorRule (&own)[A],
                                               const std::array<TensorRule, B>& shared) {
  std::array<TensorRule, A + B> all{};
  std::copy(own, own + A, all.begin());
  std::copy(shared.begin(), shared.end(), all.begin() + A);
  return all;
}

inline constexpr TensorRule kGgufTensors[] = {
    {Role::embedding, "token_embd.weight"},
    {Role::head, "output.weight"},
    {Role::final_norm, "output_norm.weight"},
    {Role::attention_norm, "blk.*.attn_norm.weight"},
    {Role::attention_post_norm, "blk.*.post_attention_norm.weight"},
    {Role::query, "blk.*.attn_q.weight"},
    {Role::key, "blk.*.attn_k.weight"},
    {Role::value, "blk.*.attn_v.weight"},
    {Role::query_bias, "blk.*.attn_q.bias"},
    {Role::key_bias, "blk.*.attn_k.bias"},
    {Role::value_bias, "blk.*.attn_v.bias"},
    {Role::query_norm, "blk.*.attn_q_norm.weight"},
    {Role::key_norm, "blk.*.attn_k_norm.weight"},
    {Role::attention_output, "blk.*.attn_output.weight"},
    {Role::feed_forward_norm, "blk.*.ffn_norm.weight"},
    {Role::feed_forward_post_norm, "blk.*.post_ffw_norm.weight"},
    {Role::gate, "blk.*.ffn_gate.weight"},
    {Role::up, "blk.*.ffn_up.weight"},
    {Role::down, "blk.*.ffn_down.weight"},
};

// What routed models have beside these: the matrices of a layer's experts one after another.
inline constexpr TensorRule kGgufExperts[] = {
    {Role::router_out, "blk.*.ffn_gate_inp.weight"},
    {Role::router_balance, "blk.*.exp_probs_b.bias"},
    {.role = Role::expert_gate, .name = "blk.*.ffn_gate_exps.weight", .stacked = true},
    {.role = Role::expert_up, .name = "blk.*.ffn_up_exps.weight", .stacked = true},
    {.role = Role::expert_down, .name = "blk.*.ffn_down_exps.weight", .stacked = true},
};

inline constexpr TensorRule kLlamaFolderTensors[] = {
    {Role::embedding, "model.embed_tokens.weight"},
    {Role::head, "lm_head.weight"},
    {Role::final_norm, "model.norm.weight"},
    {Role::attention_norm, "model.layers.*.input_layernorm.weight"},
    {Role::query, "model.layers.*.self_attn.q_proj.weight"},
    {Role::key, "model.layers.*.self_attn.k_proj.weight"},
    {Role::value, "model.layers.*.self_attn.v_proj.weight"},
    {Role::query_bias, "model.layers.*.self_attn.q_proj.bias"},
    {Role::key_bias, "model.layers.*.self_attn.k_proj.bias"},
    {Role::value_bias, "model.layers.*.self_attn.v_proj.bias"},
    {Role::query_norm, "model.layers.*.self_attn.q_norm.weight"},
    {Role::key_norm, "model.layers.*.self_attn.k_norm.weight"},
    {Role::attention_output, "model.layers.*.self_attn.o_proj.weight"},
    {Role::attention_output_bias, "model.layers.*.self_attn.o_proj.bias"},
    {Role::feed_forward_norm, "model.layers.*.post_attention_layernorm.weight"},
    {Role::gate, "model.layers.*.mlp.gate_proj.weight"},
    {Role::up, "model.layers.*.mlp.up_proj.weight"},
    {Role::down, "model.layers.*.mlp.down_proj.weight"},
};

}  // namespace kvtide
