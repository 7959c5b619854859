// gemma3.cpp: Gemma 3 (text). What differs: scaled embedding, GeGLU, norms of query and key heads and after
// both halves of a block; five of six layers see a sliding window and rotate with a base of 10,000, every
// sixth sees everything. Folders keep the norms' weights without the 1 that GGUF files have added. Source:
// the published model description and configuration of Gemma 3 (Google, 2025).
#include <cmath>

#include "base/text.h"
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::gemma3 {
namespace {

constexpr std::int64_t kPattern = 6;  // layer i is global when (i + 1) % 6 == 0
constexpr double kLocalBase = 10000.0;

void set_common(ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  config.activation = Activation::gelu;
  config.head_norms = true;
  config.post_norms = true;
}

void adjust(const GgufFile& file, ModelConfig& config) {
  set_common(config);
  // The 27B model (62 layers) scales by its width per head instead of its head dimension.
  if (config.layers.size() == 62)
    config.attention_scale =
        1.0f / std::sqrt(static_cast<float>(config.width) / static_cast<float>(config.heads));

  RopeConfig local;
  local.base = read_real(file, "rope.local.freq_base", 1.0, 1e12, kLocalBase);
  config.ropes.push_back(local);
  const auto window = read_count(file, "attention.sliding_window", 1, std::int64_t{1} << 31);
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    if ((static_cast<std::int64_t>(i) + 1) % kPattern != 0) {
      config.layers[i].window = window;
      config.layers[i].rope = 1;
    }
}

void read_text_model(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  set_common(config);
  config.tied_head = json.flag("tie_word_embeddings", true);
  if (json.text("hidden_activation").value_or("gelu_pytorch_tanh") != "gelu_pytorch_tanh")
    json.refuse(ErrorCode::unsupported, "'hidden_activation' must be gelu_pytorch_tanh");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
    if (json.has(key)) json.refuse(ErrorCode::unsupported, cat("'", key, "' is not supported"));
  require_absent_or(json, "use_bidirectional_attention", false);
  config.attention_scale =
      static_cast<float>(1.0 / std::sqrt(json.real("query_pre_attn_scalar", 1e-3, 1e6, 256.0)));

  const auto ropes = json.child("rope_parameters");
  const auto whole = ropes ? ropes->child("full_attention") : std::nullopt;
  const auto sliding = ropes ? ropes->child("sliding_attention") : std::nullopt;
  config.ropes.push_back(whole ? read_rope_object(*whole, config, 1e6) : read_folder_rope(json, config, 1e6));
  RopeConfig local;
  local.base = json.real("rope_local_base_freq", 1.0, 1e12, kLocalBase);
  config.ropes.push_back(sliding ? read_rope_object(*sliding, config, local.base) : local);

  if (json.has("layer_types")) {
    read_windows(json, config, 0);
  } else {
    const auto pattern = json.count("sliding_window_pattern", 1, 1024, kPattern);
    const auto window = json.count("sliding_window", 1, std::int64_t{1} << 31);
    for (std::size_t i = 0; i < config.layers.size(); ++i)
      if ((static_cast<std::int64_t>(i) + 1) % pattern != 0) config.layers[i].window = window;
  }
  for (LayerConfig& layer : config.layers) layer.rope = layer.window ? 1 : 0;
}

// A model of text and images keeps what concerns the text apart.
void read(const JsonFields& json, ModelConfig& config) {
  const auto text = json.child("text_config");
  read_text_model(text ? *text : json, config);
}

constexpr std::string_view kTypes[] = {"gemma3_text", "gemma3"};

constexpr TensorRule kFolderTensors[] = {
    {Role::embedding, "model.embed_tokens.weight"},
    {Role::head, "lm_head.weight"},
    {Role::final_norm, "model.norm.weight", false, false, 1.0f},
    {Role::attention_norm, "model.layers.*.input_layernorm.weight", false, false, 1.0f},
    {Role::attention_post_norm, "model.layers.*.post_attention_layernorm.weight", false, false, 1.0f},
    {Role::query, "model.layers.*.self_attn.q_proj.weight"},
    {Role::key, "model.layers.*.self_attn.k_proj.weight"},
    {Role::value, "model.layers.*.self_attn.v_proj.weight"},
    {Role::query_bias, "model.layers.*.self_attn.q_proj.bias"},
    {Role::key_bias, "model.layers.*.self_attn.k_proj.bias"},
    {Role::value_bias, "model.layers.*.self_attn.v_proj.bias"},
    {Role::query_norm, "model.layers.*.self_attn.q_norm.weight", false, false, 1.0f},
    {Role::key_norm, "model.layers.*.self_attn.k_norm.weight", false, false, 1.0f},
    {Role::attention_output, "model.layers.*.self_attn.o_proj.weight"},
    {Role::attention_output_bias, "model.layers.*.self_attn.o_proj.bias"},
    {Role::feed_forward_norm, "model.layers.*.pre_feedforward_layernorm.weight", false, false, 1.0f},
    {Role::feed_forward_post_norm, "model.layers.*.post_feedforward_layernorm.weight", false, false, 1.0f},
    {Role::gate, "model.layers.*.mlp.gate_proj.weight"},
    {Role::up, "model.layers.*.mlp.up_proj.weight"},
    {Role::down, "model.layers.*.mlp.down_proj.weight"},
};

constexpr std::string_view kPrefixes[] = {"model.", "language_model.model.", "model.language_model."};

}  // namespace
}  // namespace kvtide::gemma3

namespace kvtide {

const Architecture kGemma3{"gemma3",      &gemma3::adjust,        kGgufTensors,     gemma3::kTypes,
                           &gemma3::read, gemma3::kFolderTensors, gemma3::kPrefixes};

}  // namespace kvtide
