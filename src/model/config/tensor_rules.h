// tensor_rules.h: what a tensor is for, and under which name a family of checkpoints keeps it.
//
// The forward pass knows roles only. An architecture has one table of rules per format; a role without a
// rule, or whose tensor is absent, is not in the checkpoint. Plain constant data.
#pragma once

#include <string>
#include <string_view>

namespace kvtide {

enum class Role {
  embedding,
  positions,  // learned: [positions][width]
  head,
  final_norm,
  final_norm_bias,
  // Of a layer:
  attention_norm,
  attention_norm_bias,
  attention_post_norm,
  query,
  key,
  value,
  query_bias,
  key_bias,
  value_bias,
  query_norm,
  key_norm,
  attention_sinks,
  attention_output,
  attention_output_bias,
  feed_forward_norm,
  feed_forward_norm_bias,
  feed_forward_post_norm,
  // Numbers that a token gives to every layer (layer_inputs.h); the first three are of the model:
  layer_input_embedding,
  layer_input_projection,
  layer_input_norm,
  layer_input_gate,
  layer_input_out,
  layer_input_post_norm,
  layer_scale,  // one number by which the stream is multiplied behind a layer
  gate,
  up,
  up_bias,
  down,
  down_bias,
  // Compressed convolutional attention (cca.h):
  value_delayed,
  conv_depthwise,
  conv_depthwise_bias,
  conv_grouped,
  conv_grouped_bias,
  key_temperature,
  // Gated short convolutions (short_conv.h):
  short_conv_in,
  short_conv_in_bias,
  short_conv,
  short_conv_bias,
  short_conv_out,
  short_conv_out_bias,
  // Latent attention (latent.h):
  latent_query_down,
  latent_query_norm,
  latent_query_up,
  latent_down,
  latent_norm,
  latent_up,  // keys and values of every head, or these two
  latent_key_up,
  latent_value_up,
  // Gated delta nets (delta_net.h):
  delta_qkv,
  delta_z,
  delta_qkvz,  // both in one, key head by key head
  delta_beta,
  delta_alpha,
  delta_ba,  // likewise
  delta_conv,
  delta_time_bias,
  delta_log_decay,  // what the decay is made from, or the decay itself
  delta_decay,
  delta_norm,
  delta_out,
  // Mamba-2 (state_space.h):
  space_in,
  space_in_bias,
  space_conv,
  space_conv_bias,
  space_time_bias,
  space_log_decay,  // what the decay is made from, or the decay itself
  space_decay,
  space_skip,
  space_norm,  // of all channels, or group by group
  space_group_norm,
  space_out,
  space_out_bias,
  // Routed experts (experts.h):
  router_down,
  router_down_bias,
  router_carry,
  router_norm,
  router_first,
  router_first_bias,
  router_second,
  router_second_bias,
  router_scale,  // of the router's own input, and of what an expert puts out
  expert_scale,
  experts_norm,  // of experts beside a feed-forward (feed_forward.h): before them, and behind both
  experts_post_norm,
  beside_post_norm,
  router_out,
  router_out_bias,
  router_balance,
  expert_gate_up,  // both in one, or these two
  expert_gate,
  expert_up,
  expert_down,
  expert_gate_up_bias,
  expert_gate_bias,
  expert_up_bias,
  expert_down_bias,
  shared_share,
  shared_gate_up,  // both in one, or these two
  shared_gate,
  shared_up,
  shared_down,
  // Scales and offsets where an output joins the residual stream (residual.h); input: of the model.
  input_scale,
  input_bias,
  attention_output_scale,
  attention_output_offset,
  attention_residual_scale,
  attention_residual_offset,
  feed_forward_output_scale,
  feed_forward_output_offset,
  feed_forward_residual_scale,
  feed_forward_residual_offset,
};

struct TensorRule {
  Role role = Role::embedding;
  std::string_view name;    // '*' stands for the number of the layer, '#' for that of the expert
  bool fused = false;       // holds the rows of queries, keys and values, or of gate and up, in this order
  bool transposed = false;  // [inputs][outputs], as GPT-2's Conv1D
  float plus = 0.0f;        // is added to every element of a vector
  // The number in the name is layer * step + offset: checkpoints that count halves of layers.
  int step = 1, offset = 0;
  bool last_only = false;  // the name is that of the last layer and of no other
  bool stacked = false;    // holds the matrices of all experts, one after another
};

// The name in a checkpoint, for one layer and one expert.
inline std::string name_of(const TensorRule& rule, int layer, int expert = 0) {
  std::string name;
  for (const char c : rule.name)
    if (c == '*')
      name += std::to_string(layer * rule.step + rule.offset);
    else if (c == '#')
      name += std::to_string(expert);
    else
      name += c;
  return name;
}

}  // namespace kvtide
