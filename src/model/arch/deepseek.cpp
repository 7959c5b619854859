// deepseek.cpp: DeepSeek V3 and GLM 4.7 Flash: latent attention (latent.h) and experts chosen by sigmoids, behind some
// dense layers and beside one that serves every token. GGUF files call both deepseek2. Source: "DeepSeek-V3 Technical
// Report" (DeepSeek-AI, 2024).
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "kvtide/error.h"
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::deepseek {
namespace {

constexpr std::int64_t kWide = std::int64_t{1} << 20;
constexpr double kShareEpsilon = 1e-20, kLatentEpsilon = 1e-6;
constexpr std::int64_t kSigmoid = 2;  // the number that GGUF files have for it

// Heads of the state, and the scale of scores.
void set_latent(const std::string& file, const LatentConfig& latent, ModelConfig& config) {
  if (latent.rank + latent.rope > kMaxHeadDim)
    throw Error(ErrorCode::unsupported, cat(file, ": latents of ", latent.rank + latent.rope,
                                            " elements are wider than ", kMaxHeadDim));
  if (latent.rope < 2 || latent.rope % 2 != 0)
    throw Error(ErrorCode::bad_format,
                cat(file, ": ", latent.rope,
                    " dimensions of a head are rotated; it must be an even number, at least 2"));
  config.latent = latent;
  config.kv_heads = 1;
  config.head_dim = static_cast<int>(latent.rank + latent.rope);
  config.rope_dims = static_cast<int>(latent.rope);
  check_heads(file, config);
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(latent.nope + latent.rope));
}

// YaRN's magnitude may belong to the scores instead of the angles.
void scale_scores(double under, ModelConfig& config) {
  const RopeConfig& rope = config.ropes[0];
  if (rope.scaling != RopeScaling::yarn || under == 0.0 || rope.factor <= 1.0) return;
  const double magnitude = 0.1 * under * std::log(rope.factor) + 1.0;
  config.attention_scale *= static_cast<float>(magnitude * magnitude);
}

void set_routing(ModelConfig& config, std::int64_t dense) {
  ExpertsConfig& experts = *config.experts;
  experts.sigmoid = true;
  experts.balanced = true;
  experts.sum_epsilon = static_cast<float>(kShareEpsilon);
  for (std::int64_t i = 0; i < dense; ++i) config.layers[static_cast<std::size_t>(i)].routed = false;
}

void read_latent(const GgufFile& file, ModelConfig& config) {
  LatentConfig latent;
  latent.query_rank = read_count(file, "attention.q_lora_rank", 0, kWide, 0);
  latent.rank = read_count(file, "attention.kv_lora_rank", 1, kWide);
  latent.rope = read_count(file, "rope.dimension_count", 2, kWide);
  latent.nope = read_count(file, "attention.key_length_mla", latent.rope + 1, kWide) - latent.rope;
  latent.value = read_count(file, "attention.value_length_mla", 1, kWide);
  latent.norm_epsilon = config.norm_epsilon;
  set_latent(file.path(), latent, config);
  // Written as a tenth of what folders call mscale_all_dim; mscale is the same in all models that there are.
  config.ropes[0].magnitude = 1.0;
  scale_scores(10.0 * read_real(file, "rope.scaling.yarn_log_multiplier", 0.0, 1e3, 0.0), config);
}

void adjust(const GgufFile& file, ModelConfig& config) {
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  config.layers.resize(
      static_cast<std::size_t>(layers - read_count(file, "nextn_predict_layers", 0, layers - 1, 0)));
  read_latent(file, config);
  if (file.find_tensor("blk.0.attn_kv_b.weight") != nullptr &&
      file.find_tensor("blk.0.attn_k_b.weight") == nullptr)
    throw Error(ErrorCode::unsupported, cat(file.path(),
                                            ": the tensor 'blk.0.attn_kv_b.weight' is of an older kind of "
                                            "file; files with attn_k_b and attn_v_b are read"));
  config.experts = read_experts(file, true);
  ExpertsConfig& experts = *config.experts;
  experts.shared = experts.hidden * read_count(file, "expert_shared_count", 0, 1024, 0);
  experts.share_scale = static_cast<float>(read_real(file, "expert_weights_scale", 1e-3, 1e3, 1.0));
  experts.shares_sum_to_1 = file.get_bool("deepseek2.expert_weights_norm").value_or(false);
  experts.groups = static_cast<int>(read_count(file, "expert_group_count", 1, 1024, 1));
  experts.groups_chosen =
      static_cast<int>(read_count(file, "expert_group_used_count", 1, 1024, experts.groups));
  check_experts(file.path(), experts);
  if (read_count(file, "expert_gating_func", 0, 100, 0) != kSigmoid)
    throw Error(ErrorCode::unsupported,
                cat(file.path(), ": 'deepseek2.expert_gating_func' must be 2 (sigmoid)"));
  set_routing(config, read_count(file, "leading_dense_block_count", 0,
                                 static_cast<std::int64_t>(config.layers.size()), 0));
}

void read_latent(const JsonFields& json, ModelConfig& config) {
  LatentConfig latent;
  if (json.has("q_lora_rank")) latent.query_rank = json.count("q_lora_rank", 1, kWide);
  latent.rank = json.count("kv_lora_rank", 1, kWide);
  latent.nope = json.count("qk_nope_head_dim", 1, kWide);
  latent.rope = json.count("qk_rope_head_dim", 2, kWide);
  latent.value = json.count("v_head_dim", 1, kWide);
  latent.norm_epsilon = static_cast<float>(kLatentEpsilon);
  latent.interleaved = json.flag("rope_interleave", true);
  set_latent(json.file(), latent, config);
}

// The first layers, or those that are listed, have a single feed-forward.
void read_dense_layers(const JsonFields& json, ModelConfig& config) {
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  const auto types = json.texts("mlp_layer_types");
  if (types.empty()) {
    const bool glm = json.text("model_type") == "glm4_moe_lite";
    set_routing(config, std::min(layers, json.count("first_k_dense_replace", 0, 1024, glm ? 1 : 3)));
    return;
  }
  set_routing(config, 0);
  if (types.size() != config.layers.size())
    json.refuse(ErrorCode::bad_format,
                cat("'mlp_layer_types' has ", types.size(), " entries for ", layers, " layers"));
  for (std::size_t i = 0; i < types.size(); ++i) config.layers[i].routed = types[i] == "sparse";
}

void read(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  require_silu(json);
  require_absent_or(json, "attention_bias", false);
  read_latent(json, config);
  config.ropes = {read_folder_rope(json, config, 10000.0)};
  auto rope = json.child("rope_parameters");
  if (!rope) rope = json.child("rope_scaling");
  if (rope) scale_scores(rope->real("mscale_all_dim", 0.0, 1e3, 0.0), config);
  config.experts = read_experts(json, "n_routed_experts");
  ExpertsConfig& experts = *config.experts;
  experts.shared = experts.hidden * json.count("n_shared_experts", 0, 1024, 1);
  experts.shares_sum_to_1 = json.flag("norm_topk_prob", true);
  experts.share_scale = static_cast<float>(json.real("routed_scaling_factor", 1e-3, 1e3, 1.0));
  experts.groups = static_cast<int>(json.count("n_group", 1, 1024, 1));
  experts.groups_chosen = static_cast<int>(json.count("topk_group", 1, 1024, 1));
  check_experts(json.file(), experts);
  read_dense_layers(json, config);
}

constexpr std::string_view kTypes[] = {"deepseek_v3", "glm4_moe_lite"};

constexpr TensorRule kOwnFolder[] = {
    {Role::latent_query_down, "model.layers.*.self_attn.q_a_proj.weight"},
    {Role::latent_query_norm, "model.layers.*.self_attn.q_a_layernorm.weight"},
    {Role::latent_query_up, "model.layers.*.self_attn.q_b_proj.weight"},
    {Role::latent_down, "model.layers.*.self_attn.kv_a_proj_with_mqa.weight"},
    {Role::latent_norm, "model.layers.*.self_attn.kv_a_layernorm.weight"},
    {Role::latent_up, "model.layers.*.self_attn.kv_b_proj.weight"},
    {Role::router_out, "model.layers.*.mlp.gate.weight"},
    {Role::router_balance, "model.layers.*.mlp.gate.e_score_correction_bias"},
    {Role::expert_gate, "model.layers.*.mlp.experts.#.gate_proj.weight"},
    {Role::expert_up, "model.layers.*.mlp.experts.#.up_proj.weight"},
    {Role::expert_down, "model.layers.*.mlp.experts.#.down_proj.weight"},
    {Role::shared_gate, "model.layers.*.mlp.shared_experts.gate_proj.weight"},
    {Role::shared_up, "model.layers.*.mlp.shared_experts.up_proj.weight"},
    {Role::shared_down, "model.layers.*.mlp.shared_experts.down_proj.weight"},
};
constexpr auto kFolder = joined(kOwnFolder, kLlamaFolderTensors);

constexpr TensorRule kOwnGguf[] = {
    {Role::latent_query_down, "blk.*.attn_q_a.weight"},
    {Role::latent_query_norm, "blk.*.attn_q_a_norm.weight"},
    {Role::latent_query_up, "blk.*.attn_q_b.weight"},
    {Role::latent_down, "blk.*.attn_kv_a_mqa.weight"},
    {Role::latent_norm, "blk.*.attn_kv_a_norm.weight"},
    {Role::latent_key_up, "blk.*.attn_k_b.weight"},
    {Role::latent_value_up, "blk.*.attn_v_b.weight"},
    {Role::shared_gate, "blk.*.ffn_gate_shexp.weight"},
    {Role::shared_up, "blk.*.ffn_up_shexp.weight"},
    {Role::shared_down, "blk.*.ffn_down_shexp.weight"},
};
constexpr auto kGguf = joined(kOwnGguf, joined(kGgufExperts, kGgufTensors));

}  // namespace
}  // namespace kvtide::deepseek

namespace kvtide {

const Architecture kDeepseek{"deepseek2",      &deepseek::adjust, deepseek::kGguf,
                             deepseek::kTypes, &deepseek::read,   deepseek::kFolder};

}  // namespace kvtide
