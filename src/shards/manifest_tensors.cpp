// manifest_tensors.cpp: which tensors a kind of shard has, with the shapes that the model's numbers ask for.
#include "base/text.h"
#include "model/cca_weights.h"
#include "shards/hybrid_names.h"
#include "shards/manifest.h"

namespace kvtide {
namespace {

using Needs = std::vector<TensorNeed>;

void convolutions(const ModelConfig& c, Needs& needs) {
  const CcaSizes s(c);
  const auto numbers = [&](Role role, std::int64_t rows, std::int64_t columns) {
    needs.push_back({hybrid_name(role), rows, columns, false, true});
  };
  needs.push_back({hybrid_name(Role::value_delayed), s.kv_width / 2, c.width});
  numbers(Role::conv_depthwise, s.channels, 2);
  numbers(Role::conv_depthwise_bias, s.channels, 0);
  numbers(Role::conv_grouped, s.channels, 2 * s.head_dim);
  numbers(Role::conv_grouped_bias, s.channels, 0);
  numbers(Role::key_temperature, c.kv_heads, 0);
}

void experts(const ModelConfig& c, int layer, Needs& needs) {
  const std::int64_t router = c.experts->router_width, slots = c.experts->count + 1;
  const auto add = [&](Role role, std::int64_t rows, std::int64_t columns = 0) {
    needs.push_back({hybrid_name(role), rows, columns});
  };
  add(Role::router_down, router, c.width);
  add(Role::router_down_bias, router);
  if (layer > 0) add(Role::router_carry, router);
  add(Role::router_norm, router);
  add(Role::router_first, router, router);
  add(Role::router_first_bias, router);
  add(Role::router_second, router, router);
  add(Role::router_second_bias, router);
  add(Role::router_out, slots, router);
  add(Role::router_balance, slots);
  for (int e = 0; e < c.experts->count; ++e) {
    needs.push_back({expert_name(e, "gate"), c.hidden, c.width});
    needs.push_back({expert_name(e, "up"), c.hidden, c.width});
    needs.push_back({expert_name(e, "down"), c.width, c.hidden});
  }
}

}  // namespace

std::vector<TensorNeed> tensor_needs(const ModelConfig& c, const ShardEntry& shard) {
  std::vector<TensorNeed> needs;
  const auto norm = [&](const std::string& name) {
    needs.push_back({name + ".weight", c.width});
    if (c.norm == NormKind::layer) needs.push_back({name + ".bias", c.width});
  };
  const auto linear = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    needs.push_back({name + ".weight", rows, columns});
    needs.push_back({name + ".bias", rows, 0, true});
  };
  const auto scaled = [&] {
    if (!c.scaled_residual) return;
    for (const char* name : kResidualNames) needs.push_back({name, c.width});
  };
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim, kv = std::int64_t{c.kv_heads} * c.head_dim;
  switch (shard.info.kind) {
    case ShardKind::embedding:
      needs.push_back({"embedding.weight", c.vocab, c.width});
      if (c.learned_positions) needs.push_back({"positions.weight", c.context_length, c.width});
      if (c.scaled_residual) {
        needs.push_back({"input_scale", c.width});
        needs.push_back({"input_offset", c.width});
      }
      break;
    case ShardKind::attention:
      norm("norm");
      linear("query", q, c.width);
      linear("key", kv, c.width);
      linear("value", c.convolved ? kv / 2 : kv, c.width);
      linear("output", c.width, q);
      if (c.convolved) convolutions(c, needs);
      scaled();
      if (c.head_norms) {
        needs.push_back({"query_norm.weight", c.head_dim});
        needs.push_back({"key_norm.weight", c.head_dim});
      }
      if (c.post_norms) needs.push_back({"post_norm.weight", c.width});
      break;
    case ShardKind::mlp:
      norm("norm");
      if (c.gated) needs.push_back({"gate.weight", c.hidden, c.width});
      linear("up", c.hidden, c.width);
      linear("down", c.width, c.hidden);
      if (c.post_norms) needs.push_back({"post_norm.weight", c.width});
      scaled();
      break;
    case ShardKind::moe:
      norm("norm");
      experts(c, shard.info.layer, needs);
      scaled();
      break;
    case ShardKind::head:
      norm("norm");
      needs.push_back({"head.weight", shard.info.vocab_last - shard.info.vocab_first, c.width});
      break;
  }
  return needs;
}

std::int64_t shard_state_bytes(const ModelConfig& config, std::int64_t slots) {
  const std::int64_t rows =
      2 * config.kv_heads * slots * config.head_dim * std::int64_t{sizeof(std::uint16_t)};
  if (!config.convolved) return rows;
  const CcaSizes sizes(config);
  return rows + (2 * sizes.channels + sizes.kv_width / 2) * std::int64_t{sizeof(float)};
}

}  // namespace kvtide
