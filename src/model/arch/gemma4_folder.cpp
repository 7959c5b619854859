// gemma4_folder.cpp: the config.json of Gemma 4.
#include <algorithm>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "model/arch/gemma4_layers.h"
#include "model/config/folder_config.h"

namespace kvtide::gemma4 {
namespace {

constexpr double kBase = 1e6, kTurning = 0.25;
constexpr std::int64_t kPattern = 6;  // layer i sees everything when (i + 1) % 6 == 0

// Of all that see everything: today's files list every such layer, older ones say it once.
HeadsConfig read_whole_heads(const JsonFields& json, const ModelConfig& config) {
  const bool shared = json.flag("attention_k_eq_v", false);
  HeadsConfig heads = {config.heads, config.kv_heads,
                       static_cast<int>(json.count("global_head_dim", 1, kMaxHeadDim, 512))};
  if (shared && json.has("num_global_key_value_heads"))
    heads.kv_heads = static_cast<int>(json.count("num_global_key_value_heads", 1, 4096));
  const auto listed = json.child("per_layer_config");
  if (!listed) return heads;
  bool first = true;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const auto one = listed->child(std::to_string(i));
    if (!one) continue;
    if (config.layers[i].window)
      json.refuse(ErrorCode::unsupported, cat("'per_layer_config' has an entry for layer ", i,
                                              ", which has a window; kvtide knows those without"));
    const HeadsConfig own = {config.heads,
                             static_cast<int>(one->count("num_key_value_heads", 1, 4096, config.kv_heads)),
                             static_cast<int>(one->count("head_dim", 1, kMaxHeadDim, config.head_dim))};
    if (!first && (own.kv_heads != heads.kv_heads || own.head_dim != heads.head_dim))
      json.refuse(ErrorCode::unsupported, cat("'per_layer_config': layer ", i,
                                              " has other heads than the layers without a window before it"));
    heads = own;
    first = false;
  }
  return heads;
}

// Reads layer_types; the last layer sees everything, whatever it says.
void read_layer_types(const JsonFields& json, ModelConfig& config) {
  if (json.has("layer_types")) {
    read_windows(json, config, 0);
  } else {
    const auto window = json.count("sliding_window", 1, kLong, 512);
    for (std::size_t i = 0; i < config.layers.size(); ++i)
      if ((static_cast<std::int64_t>(i) + 1) % kPattern != 0) config.layers[i].window = window;
  }
  config.layers.back().window.reset();
}

// `dims` of a head; of a proportional rotation all pairs have the waves of whole heads, and only the first ones turn.
RopeConfig read_rotation(const JsonFields& json, const char* kind, int dims, double base) {
  RopeConfig rope;
  rope.base = base;
  rope.dims = dims;
  const bool whole = std::string_view(kind) == "full_attention";
  if (whole) rope.turning = static_cast<int>(kTurning * dims / 2);
  const auto ropes = json.child("rope_parameters");
  if (!ropes) return rope;
  const auto own = ropes->child(kind);
  if (!own) json.refuse(ErrorCode::bad_format, cat("'rope_parameters' lacks ", quoted(kind)));
  rope.base = own->real("rope_theta", 1.0, 1e12, base);
  const std::string type = own->text("rope_type").value_or("default");
  rope.turning.reset();
  if (type == "proportional") {
    rope.turning = static_cast<int>(own->real("partial_rotary_factor", 0.0, 1.0, 1.0) * dims / 2);
    if (const double factor = own->real("factor", 1e-3, 1e6, 1.0); factor != 1.0) {
      rope.scaling = RopeScaling::linear;
      rope.factor = factor;
    }
  } else if (type != "default" || own->real("partial_rotary_factor", 0.0, 1.0, 1.0) != 1.0) {
    json.refuse(ErrorCode::unsupported,
                cat("the rotation ", quoted(type), " of ", kind,
                    " is not supported; kvtide knows default, of whole heads, and proportional of gemma4"));
  }
  return rope;
}

void read_sizes(const JsonFields& json, ModelConfig& config) {
  config.context_length = json.count("max_position_embeddings", 1, kLong, 131072);
  config.width = json.count("hidden_size", 1, kWide);
  config.hidden = json.count("intermediate_size", 1, kWide);
  config.heads = static_cast<int>(json.count("num_attention_heads", 1, 4096));
  config.kv_heads = static_cast<int>(json.count("num_key_value_heads", 1, 4096, config.heads));
  config.head_dim = static_cast<int>(json.count("head_dim", 1, kMaxHeadDim, 256));
  config.norm_epsilon = static_cast<float>(json.real("rms_norm_eps", 1e-12, 1e-1, 1e-6));
  config.layers.resize(static_cast<std::size_t>(json.count("num_hidden_layers", 1, 1024)));
  config.vocab = json.count("vocab_size", 1, std::int64_t{1} << 24);
  config.tied_head = json.flag("tie_word_embeddings", true);
}

void read_text_model(const JsonFields& json, ModelConfig& config) {
  read_sizes(json, config);
  set_common(config);
  if (json.text("hidden_activation").value_or("gelu_pytorch_tanh") != "gelu_pytorch_tanh")
    json.refuse(ErrorCode::unsupported, "'hidden_activation' must be gelu_pytorch_tanh");
  require_absent_or(json, "attention_bias", false);
  if (json.text("use_bidirectional_attention").value_or("vision") != "vision")
    json.refuse(ErrorCode::unsupported, "'use_bidirectional_attention' must be vision, or absent");
  read_layer_types(json, config);
  const HeadsConfig sliding = {config.heads, config.kv_heads, config.head_dim},
                    whole = read_whole_heads(json, config);
  config.kv_heads = whole.kv_heads;
  config.head_dim = config.rope_dims = whole.head_dim;
  config.ropes = {read_rotation(json, "full_attention", whole.head_dim, kBase)};
  const bool windows = std::any_of(config.layers.begin(), config.layers.end(),
                                   [](const LayerConfig& layer) { return layer.window.has_value(); });
  if (windows)
    config.ropes.push_back(read_rotation(json, "sliding_attention", sliding.head_dim, kSlidingBase));
  if (json.flag("attention_k_eq_v", false))
    for (LayerConfig& layer : config.layers) layer.values_are_keys = !layer.window;
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  const std::int64_t shared = json.count("num_kv_shared_layers", 0, layers - 1, 0);
  set_layers(json.file(), sliding, shared, config);
  if (json.flag("use_double_wide_mlp", false))
    for (LayerConfig& layer : config.layers) layer.hidden = layer.rows_of >= 0 ? 2 * config.hidden : 0;
  config.layer_inputs = json.count("hidden_size_per_layer_input", 0, kWide, 256);
  if (config.layer_inputs > 0 && json.count("vocab_size_per_layer_input", 1, kLong, 262144) != config.vocab)
    json.refuse(ErrorCode::unsupported,
                cat("'vocab_size_per_layer_input' must be the vocab_size, ", config.vocab));
  config.logit_cap = static_cast<float>(json.real("final_logit_softcapping", 0.0, 1e6, 0.0));
  if (!json.flag("enable_moe_block", false)) return;
  ExpertsConfig experts;
  experts.count = static_cast<int>(json.count("num_experts", 1, 1024));
  experts.chosen = static_cast<int>(json.count("top_k_experts", 1, 1024));
  experts.hidden = json.count("moe_intermediate_size", 1, kWide);
  add_experts(json.file(), experts, config);
}

}  // namespace

// A model of text, images and sound keeps what concerns the text apart.
void read(const JsonFields& json, ModelConfig& config) {
  const auto text = json.child("text_config");
  read_text_model(text ? *text : json, config);
}

}  // namespace kvtide::gemma4
