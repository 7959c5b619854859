// granite.cpp: Granite 3 and 4. What differs from Llama: embedding, scores, what a half of a layer adds, and logits are
// scaled by numbers of the configuration. Of Granite 4 most layers may have Mamba-2's recurrence instead of attention
// (state_space.h), positions may turn nothing, and an expert that every token passes stands beside the others or alone.
// GGUF files call those without recurrence granite and granitemoe, whatever the folder was.
#include "base/text.h"
#include "kvtide/error.h"
#include "model/arch/architectures.h"
#include "model/arch/mamba_fields.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::granite {
namespace {

constexpr std::int64_t kWide = std::int64_t{1} << 20;
constexpr double kLeastScale = 1e-6, kMostScale = 1e6;

float scale_of(const GgufFile& file, const char* key, double fallback) {
  const double value = read_real(file, key, 0.0, kMostScale, 0.0);
  return static_cast<float>(value == 0.0 ? fallback : value);  // 0: none, as in files of others
}

void adjust(const GgufFile& file, ModelConfig& config) {
  config.rope_interleaved = true;
  config.attention_scale = scale_of(file, "attention.scale", static_cast<double>(config.attention_scale));
  config.embedding_scale = scale_of(file, "embedding_scale", 1.0);
  config.residual_scale = scale_of(file, "residual_scale", 1.0);
  config.logit_scale = 1.0f / scale_of(file, "logit_scale", 1.0);
  config.ropes[0].still = !file.get_bool(cat(config.architecture, ".rope.scaling.finetuned")).value_or(true);
}

// Experts are as wide as other models' feed-forwards.
void adjust_routed(const GgufFile& file, ModelConfig& config) {
  adjust(file, config);
  if (read_count(file, "expert_count", 0, 1024, 0) == 0) return;
  ExpertsConfig experts;
  experts.count = static_cast<int>(read_count(file, "expert_count", 1, 1024));
  experts.chosen = static_cast<int>(read_count(file, "expert_used_count", 1, 1024));
  experts.hidden = config.hidden;
  experts.shares_sum_to_1 = true;
  experts.shared = read_count(file, "expert_shared_feed_forward_length", 0, kWide, 0);
  check_experts(file.path(), experts);
  config.experts = experts;
}

void adjust_hybrid(const GgufFile& file, ModelConfig& config) {
  adjust_routed(file, config);
  for (LayerConfig& layer : config.layers)
    if (layer.mixer != Mixer::attention) layer.mixer = Mixer::state_space;
  if (attention_layers(config).size() < config.layers.size()) read_state_space(file, config);
}

void read(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  require_silu(json);
  config.attention_scale =
      static_cast<float>(json.real("attention_multiplier", kLeastScale, kMostScale, 1.0));
  config.embedding_scale =
      static_cast<float>(json.real("embedding_multiplier", kLeastScale, kMostScale, 1.0));
  config.residual_scale = static_cast<float>(json.real("residual_multiplier", kLeastScale, kMostScale, 1.0));
  config.logit_scale = static_cast<float>(1.0 / json.real("logits_scaling", kLeastScale, kMostScale, 1.0));
  config.ropes = {read_folder_rope(json, config, 10000.0)};
}

void read_routed(const JsonFields& json, ModelConfig& config) {
  read(json, config);
  const bool hybrid = json.text("model_type") == "granitemoehybrid";
  const std::int64_t shared = json.text("model_type") == "granitemoe"
                                  ? 0
                                  : json.count("shared_intermediate_size", 0, kWide, hybrid ? 1024 : 0);
  if (json.count("num_local_experts", hybrid ? 0 : 1, 1024, 8) == 0) {
    if (shared == 0)
      json.refuse(ErrorCode::bad_format, "neither 'num_local_experts' nor 'shared_intermediate_size'");
    config.hidden = shared;
    return;
  }
  ExpertsConfig experts;
  experts.count = static_cast<int>(json.count("num_local_experts", 1, 1024, 8));
  experts.chosen = static_cast<int>(json.count("num_experts_per_tok", 1, 1024, 2));
  experts.hidden = config.hidden;
  experts.shares_sum_to_1 = true;
  experts.shared = shared;
  check_experts(json.file(), experts);
  config.experts = experts;
}

constexpr StateSpaceKeys kKeys = {.heads = "mamba_n_heads",
                                  .head_dim = "mamba_d_head",
                                  .state = "mamba_d_state",
                                  .groups = "mamba_n_groups",
                                  .taps = "mamba_d_conv",
                                  .biased = "mamba_proj_bias",
                                  .conv_biased = "mamba_conv_bias"};

void read_layer_types(const JsonFields& json, ModelConfig& config) {
  const auto types = json.texts(json.has("layer_types") ? "layer_types" : "layers_block_type");
  if (!types.empty() && types.size() != config.layers.size())
    json.refuse(ErrorCode::bad_format,
                cat("'layer_types' has ", types.size(), " entries for ", config.layers.size(), " layers"));
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const std::string type = types.empty() ? "mamba" : types[i];
    if (type == "mamba" || type == "linear_attention")
      config.layers[i].mixer = Mixer::state_space;
    else if (type != "attention" && type != "full_attention")
      json.refuse(ErrorCode::unsupported, cat("layer ", i, " is of the type ", quoted(type),
                                              "; kvtide knows attention and mamba of granitemoehybrid"));
  }
}

void read_hybrid(const JsonFields& json, ModelConfig& config) {
  read_routed(json, config);
  const std::string positions = json.text("position_embedding_type").value_or("nope");
  if (positions != "nope" && positions != "rope")
    json.refuse(ErrorCode::unsupported,
                cat("'position_embedding_type' is ", quoted(positions), "; kvtide knows rope and nope"));
  config.ropes[0].still = positions == "nope";
  read_layer_types(json, config);
  if (attention_layers(config).size() < config.layers.size()) read_state_space(json, kKeys, config);
}

constexpr std::string_view kTypes[] = {"granite"}, kRoutedTypes[] = {"granitemoe", "granitemoeshared"},
                           kHybridTypes[] = {"granitemoehybrid"};

constexpr TensorRule kOwnFolder[] = {
    {Role::space_in, "model.layers.*.mamba.in_proj.weight"},
    {Role::space_in_bias, "model.layers.*.mamba.in_proj.bias"},
    {Role::space_conv, "model.layers.*.mamba.conv1d.weight"},
    {Role::space_conv_bias, "model.layers.*.mamba.conv1d.bias"},
    {Role::space_time_bias, "model.layers.*.mamba.dt_bias"},
    {Role::space_log_decay, "model.layers.*.mamba.A_log"},
    {Role::space_skip, "model.layers.*.mamba.D"},
    {Role::space_norm, "model.layers.*.mamba.norm.weight"},
    {Role::space_out, "model.layers.*.mamba.out_proj.weight"},
    {Role::space_out_bias, "model.layers.*.mamba.out_proj.bias"},
    {Role::router_out, "model.layers.*.block_sparse_moe.router.layer.weight"},
    {.role = Role::expert_gate_up,
     .name = "model.layers.*.block_sparse_moe.input_linear.weight",
     .stacked = true},
    {.role = Role::expert_down,
     .name = "model.layers.*.block_sparse_moe.output_linear.weight",
     .stacked = true},
    {Role::shared_gate_up, "model.layers.*.shared_mlp.input_linear.weight"},
    {Role::shared_down, "model.layers.*.shared_mlp.output_linear.weight"},
    {.role = Role::gate, .name = "model.layers.*.shared_mlp.input_linear.weight", .fused = true},
    {.role = Role::up, .name = "model.layers.*.shared_mlp.input_linear.weight", .fused = true},
    {Role::down, "model.layers.*.shared_mlp.output_linear.weight"},
};
constexpr auto kFolder = joined(kOwnFolder, kLlamaFolderTensors);

constexpr TensorRule kGgufShared[] = {
    {Role::attention_output_bias, "blk.*.attn_output.bias"},
    {Role::shared_gate, "blk.*.ffn_gate_shexp.weight"},
    {Role::shared_up, "blk.*.ffn_up_shexp.weight"},
    {Role::shared_down, "blk.*.ffn_down_shexp.weight"},
};
constexpr auto kGguf = joined(kGgufStateSpace, joined(kGgufShared, joined(kGgufExperts, kGgufTensors)));

}  // namespace
}  // namespace kvtide::granite

namespace kvtide {

const Architecture kGranite{"granite",       &granite::adjust, granite::kGguf,
                            granite::kTypes, &granite::read,   granite::kFolder};
const Architecture kGraniteMoe{"granitemoe",          &granite::adjust_routed, granite::kGguf,
                               granite::kRoutedTypes, &granite::read_routed,   granite::kFolder};
const Architecture kGraniteHybrid{"granitehybrid",       &granite::adjust_hybrid, granite::kGguf,
                                  granite::kHybridTypes, &granite::read_hybrid,   granite::kFolder};

}  // namespace kvtide
