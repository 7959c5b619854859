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
  attention_output,
  attention_output_bias,
  feed_forward_norm,
  feed_forward_norm_bias,
  feed_forward_post_norm,
  gate,
  up,
  up_bias,
  down,
  down_bias,
};

struct TensorRule {
  Role role;
  std::string_view name;    // '*' stands for the number of the layer
  bool fused = false;       // holds the rows of queries, keys and values, in this order
  bool transposed = false;  // [inputs][outputs], as GPT-2's Conv1D
  float plus = 0.0f;        // is added to every element of a vector
};

// The name in a checkpoint, for one layer.
inline std::string name_of(const TensorRule& rule, int layer) {
  const std::size_t star = rule.name.find('*');
  if (star == rule.name.npos) return std::string(rule.name);
  return std::string(rule.name.substr(0, star)) + std::to_string(layer) +
         std::string(rule.name.substr(star + 1));
}

}  // namespace kvtide
