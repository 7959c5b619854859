// zaya.cpp: ZAYA1 of Zyphra. What differs: queries and keys go through two short convolutions and half of
// every value comes a token late (cca.h), one of several experts is chosen per token (experts.h), outputs and
// the stream are scaled where they meet (residual.h), half of each head is rotated. config.json comes in two
// ages: today's counts blocks, the older one halves of blocks. Sources: the published model description and
// configurations of ZAYA1 (Zyphra, 2025), "Compressed Convolutional Attention" (arXiv 2510.04476).
#include <cmath>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "model/arch/architectures.h"
#include "model/arch/zaya_tensors.h"
#include "model/config/folder_config.h"

namespace kvtide::zaya {
namespace {

constexpr std::int64_t kWide = std::int64_t{1} << 20;
constexpr std::int64_t kLong = std::int64_t{1} << 31;
constexpr double kBase = 5e6, kSlidingBase = 1e4, kRotated = 0.5;

void adjust(const GgufFile& file, ModelConfig&) {
  throw Error(ErrorCode::unsupported, cat(file.path(), ": zaya is read from Hugging Face folders only"));
}

void require(const JsonFields& json, const char* key, std::int64_t value) {
  const std::int64_t found = json.count(key, 0, kLong, value);
  if (found != value)
    json.refuse(ErrorCode::unsupported, cat("'", key, "' is ", found, "; only ", value, " is supported"));
}

// Of zaya, in any age, `key` gives this share of a head to rotation.
int rotated_dims(const JsonFields& json, const ModelConfig& config, double fallback) {
  const double share = json.real("partial_rotary_factor", 0.0, 1.0, fallback);
  const int dims = static_cast<int>(config.head_dim * share);
  if (dims < 2 || dims % 2 != 0)
    json.refuse(ErrorCode::bad_format, cat("'partial_rotary_factor' of ", share, " rotates ", dims,
                                           " dimensions of a head; it must be an even number, at least 2"));
  return dims;
}

// What belongs to one type of layers: an object of its own, or the one that all share.
void read_rotation(const JsonFields& json, const char* type, double base, ModelConfig& config) {
  auto rope = json.child("rope_parameters");
  if (rope && rope->has(type)) rope = rope->child(type);
  const double rotated = json.real("partial_rotary_factor", 0.0, 1.0, kRotated);
  const int dims = rope ? rotated_dims(*rope, config, rotated) : rotated_dims(json, config, rotated);
  if (config.rope_dims != 0 && config.rope_dims != dims)
    json.refuse(ErrorCode::unsupported, cat("layers that rotate ", config.rope_dims, " and ", dims,
                                            " dimensions of a head in one model are not supported"));
  config.rope_dims = dims;
  base = json.real("rope_theta", 1.0, 1e12, base);
  RopeConfig plain;
  plain.base = base;
  config.ropes.push_back(rope ? read_rope_object(*rope, config, base) : plain);
}

void read_layer_types(const JsonFields& json, ModelConfig& config) {
  const auto types = json.texts("layer_types");
  if (json.has("layer_types") && types.size() != config.layers.size())
    json.refuse(ErrorCode::bad_format,
                cat("'layer_types' has ", types.size(), " entries for ", config.layers.size(), " layers"));
  int whole = -1, sliding = -1;  // of config.ropes
  const auto rope_of = [&](int& index, const char* type, double base) {
    if (index < 0) {
      index = static_cast<int>(config.ropes.size());
      read_rotation(json, type, base, config);
    }
    return index;
  };
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const std::string type = types.empty() ? "hybrid" : types[i];
    if (type == "hybrid") {
      config.layers[i].rope = rope_of(whole, "hybrid", kBase);
    } else if (type == "hybrid_sliding") {
      config.layers[i].window = json.count("sliding_window", 1, kLong);
      config.layers[i].rope = rope_of(sliding, "hybrid_sliding", kSlidingBase);
    } else {
      json.refuse(ErrorCode::unsupported, cat("layer ", i, " is of the type ", quoted(type),
                                              "; kvtide knows hybrid and hybrid_sliding of zaya"));
    }
  }
}

// What both ages say under the same key, and what follows from the heads.
void read_common(const JsonFields& json, ModelConfig& config) {
  config.context_length = json.count("max_position_embeddings", 1, kLong, 131072);
  config.width = json.count("hidden_size", 1, kWide);
  config.vocab = json.count("vocab_size", 1, std::int64_t{1} << 24);
  config.tied_head = json.flag("tie_word_embeddings", true);
  check_heads(json.file(), config);
  if (config.head_dim > kMaxHeadDim)
    json.refuse(ErrorCode::unsupported, cat("heads of ", config.head_dim, " are wider than ", kMaxHeadDim));
  if (config.kv_heads * config.head_dim % 2 != 0)
    json.refuse(ErrorCode::bad_format, cat(config.kv_heads, " KV heads of ", config.head_dim,
                                           " cannot be halved into current and delayed values"));
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.convolved = true;
  config.scaled_residual = true;
  for (const char* key : {"attention_bias", "lm_head_bias"}) require_absent_or(json, key, false);
  for (const char* key : {"cca_time0", "cca_time1"}) require(json, key, 2);
  if (const std::string skip = json.text("kvtide_skip_slot").value_or(""); !skip.empty()) {
    if (skip != "identity" && skip != "zero")
      json.refuse(ErrorCode::bad_format,
                  cat("'kvtide_skip_slot' is ", quoted(skip), "; it must be identity or zero"));
    config.experts->skip = skip == "zero" ? SkipSlot::zero : SkipSlot::identity;
  }
}

void read_of_today(const JsonFields& json, ModelConfig& config) {
  config.heads = static_cast<int>(json.count("num_attention_heads", 1, 4096));
  config.kv_heads = static_cast<int>(json.count("num_key_value_heads", 1, 4096));
  config.head_dim = static_cast<int>(json.count("head_dim", 1, kMaxHeadDim, 128));
  config.layers.resize(static_cast<std::size_t>(json.count("num_hidden_layers", 1, 1024)));
  config.hidden = json.count("moe_intermediate_size", 1, kWide);
  config.norm_epsilon = static_cast<float>(json.real("rms_norm_eps", 1e-12, 1e-1, 1e-5));
  ExpertsConfig experts;
  experts.count = static_cast<int>(json.count("num_experts", 1, 1024));
  experts.router_width = json.count("router_hidden_size", 1, kWide, 256);
  experts.skip = SkipSlot::zero;
  config.experts = experts;
  require(json, "num_experts_per_tok", 1);
  if (const std::string activation = json.text("hidden_act").value_or("silu"); activation != "silu")
    json.refuse(ErrorCode::unsupported, cat("'hidden_act' is ", quoted(activation), "; silu is supported"));
  read_common(json, config);
  read_layer_types(json, config);
}

// A number, or a list with one for every half: of attention halves `key` holds the heads, of the others 0.
std::int64_t heads_of_halves(const JsonFields& json, const char* key, std::size_t halves,
                             std::int64_t fallback) {
  const JsonValue* value = json.find(key);
  if (value == nullptr || value->list() == nullptr) return json.count(key, 1, 4096, fallback);
  const auto& list = *value->list();
  const std::int64_t* first = list.empty() ? nullptr : list[0].integer();
  bool same = list.size() == halves && first != nullptr && *first >= 1 && *first <= 4096;
  for (std::size_t i = 0; same && i < list.size(); i += 2)
    same = list[i].integer() != nullptr && *list[i].integer() == *first;
  if (!same)
    json.refuse(ErrorCode::bad_format, cat("'", key, "' must hold ", halves,
                                           " numbers, the same for every attention, from 1 to 4096"));
  return *first;
}

void read_of_halves(const JsonFields& json, ModelConfig& config) {
  const std::int64_t halves = json.count("num_hidden_layers", 2, 2048);
  if (halves % 2 != 0)
    json.refuse(ErrorCode::bad_format, cat("'num_hidden_layers' is ", halves,
                                           "; attentions and experts alternate, so it must be even"));
  const auto count = static_cast<std::size_t>(halves);
  config.layers.resize(count / 2);
  config.heads = static_cast<int>(
      heads_of_halves(json, "cca_num_q_heads", count, json.count("num_attention_heads", 1, 4096)));
  config.kv_heads = static_cast<int>(heads_of_halves(
      json, "num_query_groups_list", count,
      json.count("num_query_groups", 1, 4096, json.count("num_key_value_heads", 1, 4096, 2))));
  config.head_dim = static_cast<int>(
      json.count("kv_channels", 1, kMaxHeadDim, json.count("head_dim", 1, kMaxHeadDim, 128)));
  const std::int64_t gate_and_up = json.count("ffn_hidden_size", 2, 2 * kWide);
  if (gate_and_up % 2 != 0)
    json.refuse(ErrorCode::bad_format,
                cat("'ffn_hidden_size' is ", gate_and_up, "; gate and up share it, so it must be even"));
  config.hidden = gate_and_up / 2;
  config.norm_epsilon = static_cast<float>(json.real("norm_epsilon", 1e-12, 1e-1, 1e-5));
  config.temperature_is_log = json.flag("clamp_temp", false);
  ExpertsConfig experts;
  experts.count = static_cast<int>(json.count("num_experts", 1, 1024));
  experts.router_width = json.count("zaya_mlp_expansion", 1, kWide, 256);
  experts.skip = SkipSlot::identity;
  config.experts = experts;
  require(json, "moe_router_topk", 1);
  for (const char* key : {"cca", "zaya_use_eda", "zaya_use_mod", "scale_residual_merge", "residual_in_fp32"})
    require_absent_or(json, key, true);
  for (const char* key : {"add_bias_linear", "rope_scaling"}) require_absent_or(json, key, false);
  if (json.has("sliding_window"))
    json.refuse(ErrorCode::unsupported,
                "'sliding_window' of a config that counts halves does not say which layers it is for; a "
                "config of today says it in 'layer_types' (and counts the position itself: one more)");
  read_common(json, config);
  read_layer_types(json, config);
}

void read(const JsonFields& json, ModelConfig& config) {
  if (json.has("moe_intermediate_size"))
    read_of_today(json, config);
  else
    read_of_halves(json, config);
}

constexpr std::string_view kTypes[] = {"zaya"};
constexpr std::string_view kPrefixes[] = {"model.", ""};

}  // namespace
}  // namespace kvtide::zaya

namespace kvtide {

const Architecture kZaya{"zaya",       &zaya::adjust,   {},         zaya::kTypes, &zaya::read,
                         kZayaTensors, zaya::kPrefixes, kZayaHalves};

}  // namespace kvtide
