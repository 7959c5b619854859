// qwen3_moe.cpp: Qwen 3 with experts. What differs from the dense models: a router chooses some of many small
// feed-forwards for every token; some layers of a folder may have a single one.
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::qwen3_moe {
namespace {

void adjust(const GgufFile& file, ModelConfig& config) {
  config.head_norms = true;
  config.experts = read_experts(file);
  config.experts->shares_sum_to_1 = true;
}

void read(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  require_silu(json);
  config.head_norms = true;
  config.ropes = {read_folder_rope(json, config, 10000.0)};
  if (json.flag("use_sliding_window", false)) read_windows(json, config, 0);
  config.experts = read_experts(json, json.has("num_local_experts") ? "num_local_experts" : "num_experts");
  config.experts->shares_sum_to_1 = json.flag("norm_topk_prob", false);
  read_routed_layers(json, config);
}

constexpr std::string_view kTypes[] = {"qwen3_moe"};

constexpr TensorRule kExperts[] = {
    {Role::router_out, "model.layers.*.mlp.gate.weight"},
    {Role::expert_gate, "model.layers.*.mlp.experts.#.gate_proj.weight"},
    {Role::expert_up, "model.layers.*.mlp.experts.#.up_proj.weight"},
    {Role::expert_down, "model.layers.*.mlp.experts.#.down_proj.weight"},
};
constexpr auto kFolder = joined(kExperts, kLlamaFolderTensors);
constexpr auto kGguf = joined(kGgufExperts, kGgufTensors);

}  // namespace
}  // namespace kvtide::qwen3_moe

namespace kvtide {

const Architecture kQwen3Moe{"qwen3moe",        &qwen3_moe::adjust, qwen3_moe::kGguf,
                             qwen3_moe::kTypes, &qwen3_moe::read,   qwen3_moe::kFolder};

}  // namespace kvtide
