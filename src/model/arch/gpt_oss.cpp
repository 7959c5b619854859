// gpt_oss.cpp: gpt-oss. What differs from Llama: a learned score in the denominator of every head, a window on every other
// layer, biases everywhere, experts with a clamped gate whose matrices are MXFP4, and YaRN whose blend is not rounded
// to whole pairs. Source: the published model card and configuration of gpt-oss (OpenAI, 2025).
#include "base/text.h"
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::gpt_oss {
namespace {

constexpr double kAlpha = 1.702, kLimit = 7.0;

void set_common(ModelConfig& config) {
  config.attention_sinks = true;
  config.experts->shares_sum_to_1 = true;
  config.experts->biased = true;
  config.experts->clamped = {static_cast<float>(kAlpha), static_cast<float>(kLimit)};
}

void set_windows(ModelConfig& config, std::int64_t window) {
  for (std::size_t i = 0; i < config.layers.size(); i += 2) config.layers[i].window = window;
}

void adjust(const GgufFile& file, ModelConfig& config) {
  config.experts = read_experts(file);
  set_common(config);
  config.ropes[0].whole_pairs = false;
  set_windows(config, read_count(file, "attention.sliding_window", 1, std::int64_t{1} << 31));
}

void read(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  if (!json.child("rope_parameters") && !json.child("rope_scaling"))
    json.refuse(ErrorCode::bad_format,
                "neither 'rope_parameters' nor 'rope_scaling' says how positions rotate");
  config.ropes = {read_folder_rope(json, config, 150000.0)};
  config.experts = read_experts(json, "num_local_experts", "intermediate_size");
  set_common(config);
  config.experts->gate_up_turns = true;
  config.experts->clamped = {static_cast<float>(json.real("swiglu_alpha", 1e-3, 1e3, kAlpha)),
                             static_cast<float>(json.real("swiglu_limit", 1e-3, 1e6, kLimit))};
  if (json.has("layer_types"))
    read_windows(json, config, 0);
  else
    set_windows(config, json.count("sliding_window", 1, std::int64_t{1} << 31));
}

constexpr std::string_view kTypes[] = {"gpt_oss"};

constexpr TensorRule kOwnFolder[] = {
    {Role::attention_sinks, "model.layers.*.self_attn.sinks"},
    {Role::router_out, "model.layers.*.mlp.router.weight"},
    {Role::router_out_bias, "model.layers.*.mlp.router.bias"},
    {.role = Role::expert_gate_up, .name = "model.layers.*.mlp.experts.gate_up_proj_blocks", .stacked = true},
    {.role = Role::expert_down, .name = "model.layers.*.mlp.experts.down_proj_blocks", .stacked = true},
    {.role = Role::expert_gate_up,
     .name = "model.layers.*.mlp.experts.gate_up_proj",
     .transposed = true,
     .stacked = true},
    {.role = Role::expert_down,
     .name = "model.layers.*.mlp.experts.down_proj",
     .transposed = true,
     .stacked = true},
    {Role::expert_gate_up_bias, "model.layers.*.mlp.experts.gate_up_proj_bias"},
    {Role::expert_down_bias, "model.layers.*.mlp.experts.down_proj_bias"},
};
constexpr auto kFolder = joined(kOwnFolder, kLlamaFolderTensors);

constexpr TensorRule kOwnGguf[] = {
    {Role::attention_sinks, "blk.*.attn_sinks.weight"},
    {Role::attention_output_bias, "blk.*.attn_output.bias"},
    {Role::feed_forward_norm, "blk.*.post_attention_norm.weight"},
    {Role::router_out_bias, "blk.*.ffn_gate_inp.bias"},
    {Role::expert_gate_bias, "blk.*.ffn_gate_exps.bias"},
    {Role::expert_up_bias, "blk.*.ffn_up_exps.bias"},
    {Role::expert_down_bias, "blk.*.ffn_down_exps.bias"},
};
constexpr auto kGguf = joined(kOwnGguf, joined(kGgufExperts, kGgufTensors));

}  // namespace
}  // namespace kvtide::gpt_oss

namespace kvtide {

const Architecture kGptOss{"gpt-oss",       &gpt_oss::adjust, gpt_oss::kGguf,
                           gpt_oss::kTypes, &gpt_oss::read,   gpt_oss::kFolder};

}  // namespace kvtide
