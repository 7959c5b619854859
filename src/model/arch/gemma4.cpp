// gemma4.cpp: Gemma 4 (text). What differs from Gemma 3: norms as they are stored; values are normed, too, and may be the
// keys before their norm; scores are not scaled; layers that see everything have wider heads, of which a part of the pairs
// turns; the last layers read the keys and values of earlier ones, and their feed-forward may be twice as wide. A token may
// give numbers to every layer (layer_inputs.h), experts may stand beside the feed-forward, logits are capped. Source: the
// published configurations of Gemma 4 (Google, 2026).
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "kvtide/error.h"
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::gemma4 {
namespace {

constexpr std::int64_t kWide = std::int64_t{1} << 20, kLong = std::int64_t{1} << 31;
constexpr double kBase = 1e6, kSlidingBase = 10000.0, kTurning = 0.25;
constexpr std::int64_t kPattern = 6;  // layer i sees everything when (i + 1) % 6 == 0

void set_common(ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  config.activation = Activation::gelu;
  config.head_norms = config.value_norm = config.post_norms = true;
  config.attention_scale = 1.0f;
}

// Layers with a window have their own heads and rotation; `shared` layers at the end read the rows of the last layer of
// their kind before them.
void set_layers(const std::string& file, const HeadsConfig& sliding, std::int64_t shared,
                ModelConfig& config) {
  for (LayerConfig& layer : config.layers) {
    if (!layer.window) continue;
    layer.rope = 1;
    layer.kv_heads = sliding.kv_heads;
    layer.head_dim = sliding.head_dim;
  }
  const auto count = static_cast<int>(config.layers.size()), own = count - static_cast<int>(shared);
  for (int i = own; i < count; ++i) {
    LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
    const auto alike = [&](int other) {
      return config.layers[static_cast<std::size_t>(other)].window.has_value() == layer.window.has_value();
    };
    int source = own - 1;
    while (source >= 0 && !alike(source)) --source;
    if (source < 0)
      throw Error(
          ErrorCode::bad_format,
          cat(file, ": layer ", i, " shares keys and values with a layer of its kind; none of the first ",
              own, " is one"));
    layer.rows_of = source;
    layer.values_are_keys = false;
  }
  for (int i = 0; i < count; ++i) {
    const HeadsConfig heads = heads_of(config, i);
    ModelConfig one;
    one.heads = heads.heads;
    one.kv_heads = heads.kv_heads;
    check_heads(file, one);
    if (heads.head_dim > kMaxHeadDim)
      throw Error(ErrorCode::unsupported,
                  cat(file, ": heads of ", heads.head_dim, " are wider than ", kMaxHeadDim));
    if (heads.head_dim % 2 != 0)
      throw Error(ErrorCode::bad_format,
                  cat(file, ": heads of ", heads.head_dim, " cannot be rotated in pairs"));
  }
}

void add_experts(const std::string& file, ExpertsConfig experts, ModelConfig& config) {
  experts.shares_sum_to_1 = experts.beside = true;
  check_experts(file, experts);
  config.experts = experts;
}

void read_gguf_experts(const GgufFile& file, ModelConfig& config) {
  if (read_count(file, "expert_count", 0, 1024, 0) > 0) add_experts(file.path(), read_experts(file), config);
}

void adjust(const GgufFile& file, ModelConfig& config) {
  set_common(config);
  const auto pattern = file.get_ints("gemma4.attention.sliding_window_pattern");
  if (!pattern || pattern->size() != config.layers.size())
    throw Error(
        ErrorCode::bad_format,
        cat(file.path(), ": 'gemma4.attention.sliding_window_pattern' must have one entry for each of ",
            config.layers.size(), " layers"));
  const std::int64_t window = read_count(file, "attention.sliding_window", 1, kLong);
  if (file.find_tensor("rope_freqs.weight") == nullptr)
    throw Error(ErrorCode::bad_format,
                cat(file.path(), ": the tensor 'rope_freqs.weight' is missing; it says which pairs turn"));
  HeadsConfig sliding = {config.heads, config.kv_heads, config.head_dim};
  sliding.head_dim =
      static_cast<int>(read_count(file, "attention.key_length_swa", 1, kMaxHeadDim, config.head_dim));
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    const int kv_heads = heads_of(config, static_cast<int>(i)).kv_heads;
    if ((*pattern)[i] != 0) {
      layer.window = window;
      sliding.kv_heads = kv_heads;
    }
    layer.values_are_keys = file.find_tensor(cat("blk.", i, ".attn_v.weight")) == nullptr;
  }
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    if (LayerConfig& layer = config.layers[i]; !layer.window && layer.kv_heads > 0) {
      config.kv_heads = layer.kv_heads;
      layer.kv_heads = 0;
    }
  RopeConfig near;
  near.base = read_real(file, "rope.freq_base_swa", 1.0, 1e12, kSlidingBase);
  near.dims =
      static_cast<int>(read_count(file, "rope.dimension_count_swa", 2, kMaxHeadDim, sliding.head_dim));
  if (near.dims > sliding.head_dim || near.dims % 2 != 0)
    throw Error(ErrorCode::bad_format, cat(file.path(), ": rope.dimension_count_swa is ", near.dims,
                                           "; it must be even and at most the head's ", sliding.head_dim));
  config.ropes.push_back(near);
  set_layers(file.path(), sliding,
             read_count(file, "attention.shared_kv_layers", 0,
                        static_cast<std::int64_t>(config.layers.size()) - 1, 0),
             config);
  config.layer_inputs = read_count(file, "embedding_length_per_layer_input", 0, kWide, 0);
  config.logit_cap = static_cast<float>(read_real(file, "final_logit_softcapping", 0.0, 1e6, 0.0));
  read_gguf_experts(file, config);
}

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

// A model of text, images and sound keeps what concerns the text apart.
void read(const JsonFields& json, ModelConfig& config) {
  const auto text = json.child("text_config");
  read_text_model(text ? *text : json, config);
}

constexpr std::string_view kTypes[] = {"gemma4_text", "gemma4"};
constexpr std::string_view kPrefixes[] = {"model.", "model.language_model.", "language_model.model."};

constexpr TensorRule kOwnFolder[] = {
    {Role::attention_post_norm, "model.layers.*.post_attention_layernorm.weight"},
    {Role::feed_forward_norm, "model.layers.*.pre_feedforward_layernorm.weight"},
    {Role::feed_forward_post_norm, "model.layers.*.post_feedforward_layernorm.weight"},
    {Role::layer_input_embedding, "model.embed_tokens_per_layer.weight"},
    {Role::layer_input_projection, "model.per_layer_model_projection.weight"},
    {Role::layer_input_norm, "model.per_layer_projection_norm.weight"},
    {Role::layer_input_gate, "model.layers.*.per_layer_input_gate.weight"},
    {Role::layer_input_out, "model.layers.*.per_layer_projection.weight"},
    {Role::layer_input_post_norm, "model.layers.*.post_per_layer_input_norm.weight"},
    {Role::layer_scale, "model.layers.*.layer_scalar"},
    {Role::experts_norm, "model.layers.*.pre_feedforward_layernorm_2.weight"},
    {Role::experts_post_norm, "model.layers.*.post_feedforward_layernorm_2.weight"},
    {Role::beside_post_norm, "model.layers.*.post_feedforward_layernorm_1.weight"},
    {Role::router_scale, "model.layers.*.router.scale"},
    {Role::expert_scale, "model.layers.*.router.per_expert_scale"},
    {Role::router_out, "model.layers.*.router.proj.weight"},
    {.role = Role::expert_gate_up, .name = "model.layers.*.experts.gate_up_proj", .stacked = true},
    {.role = Role::expert_down, .name = "model.layers.*.experts.down_proj", .stacked = true},
};
constexpr auto kFolder = joined(kOwnFolder, kLlamaFolderTensors);

constexpr TensorRule kOwnGguf[] = {
    {Role::layer_input_embedding, "per_layer_token_embd.weight"},
    {Role::layer_input_projection, "per_layer_model_proj.weight"},
    {Role::layer_input_norm, "per_layer_proj_norm.weight"},
    {Role::layer_input_gate, "blk.*.inp_gate.weight"},
    {Role::layer_input_out, "blk.*.proj.weight"},
    {Role::layer_input_post_norm, "blk.*.post_norm.weight"},
    {Role::layer_scale, "blk.*.layer_output_scale.weight"},
    {Role::experts_norm, "blk.*.pre_ffw_norm_2.weight"},
    {Role::experts_post_norm, "blk.*.post_ffw_norm_2.weight"},
    {Role::beside_post_norm, "blk.*.post_ffw_norm_1.weight"},
    {Role::router_scale, "blk.*.ffn_gate_inp.scale"},
    {Role::expert_scale, "blk.*.ffn_down_exps.scale"},
    {.role = Role::expert_gate_up, .name = "blk.*.ffn_gate_up_exps.weight", .stacked = true},
};
constexpr auto kGguf = joined(kOwnGguf, joined(kGgufExperts, kGgufTensors));

}  // namespace
}  // namespace kvtide::gemma4

namespace kvtide {

const Architecture kGemma4{.name = "gemma4",
                           .adjust = &gemma4::adjust,
                           .gguf_tensors = gemma4::kGguf,
                           .model_types = gemma4::kTypes,
                           .read = &gemma4::read,
                           .folder_tensors = gemma4::kFolder,
                           .folder_prefixes = gemma4::kPrefixes,
                           .uneven = true};

}  // namespace kvtide
