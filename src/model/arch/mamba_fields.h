// mamba_fields.h: what the architectures with Mamba-2 layers (state_space.h) have in common.
#pragma once

#include "base/json/json_fields.h"
#include "formats/gguf.h"
#include "model/config/config.h"
#include "model/config/tensor_rules.h"

namespace kvtide {

// Sizes of the recurrence, from the ssm keys of a GGUF file.
void read_state_space(const GgufFile& file, ModelConfig& config);

// Under which keys a config.json has them.
struct StateSpaceKeys {
  const char *heads, *head_dim, *state, *groups, *taps, *biased, *conv_biased;
};
void read_state_space(const JsonFields& json, const StateSpaceKeys& keys, ModelConfig& config);

inline constexpr TensorRule kGgufStateSpace[] = {
    {Role::space_in, "blk.*.ssm_in.weight"},
    {Role::space_conv, "blk.*.ssm_conv1d.weight"},
    {Role::space_conv_bias, "blk.*.ssm_conv1d.bias"},
    {Role::space_time_bias, "blk.*.ssm_dt.bias"},
    {Role::space_decay, "blk.*.ssm_a"},
    {Role::space_skip, "blk.*.ssm_d"},
    {Role::space_group_norm, "blk.*.ssm_norm.weight"},
    {Role::space_out, "blk.*.ssm_out.weight"},
};
// A folder whose layers are each one block, a recurrence: what mamba2 has, and nemotron_h among others.
inline constexpr TensorRule kBackboneStateSpace[] = {
    {Role::embedding, "backbone.embeddings.weight"},
    {Role::head, "lm_head.weight"},
    {Role::final_norm, "backbone.norm_f.weight"},
    {Role::attention_norm, "backbone.layers.*.norm.weight"},
    {Role::space_in, "backbone.layers.*.mixer.in_proj.weight"},
    {Role::space_in_bias, "backbone.layers.*.mixer.in_proj.bias"},
    {Role::space_conv, "backbone.layers.*.mixer.conv1d.weight"},
    {Role::space_conv_bias, "backbone.layers.*.mixer.conv1d.bias"},
    {Role::space_time_bias, "backbone.layers.*.mixer.dt_bias"},
    {Role::space_log_decay, "backbone.layers.*.mixer.A_log"},
    {Role::space_skip, "backbone.layers.*.mixer.D"},
    {Role::space_norm, "backbone.layers.*.mixer.norm.weight"},
    {Role::space_out, "backbone.layers.*.mixer.out_proj.weight"},
    {Role::space_out_bias, "backbone.layers.*.mixer.out_proj.bias"},
};

}  // namespace kvtide
