#include "eval/plan.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "engine/session_spec.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/spec/bytes.h"

namespace kvtide {
namespace {

// From the configurations that the models' makers publish.
constexpr ModelShape kKnown[] = {
    {"smollm2-135m", 30, 9, 3, 64, 576, 1536, 49152, 8192},
    {"gemma-3-270m", 18, 4, 1, 256, 640, 2048, 262144, 32768, 512, 6},
    {"llama-3.2-1b", 16, 32, 8, 64, 2048, 8192, 128256, 131072},
    {"gemma-3-4b", 34, 8, 4, 256, 2560, 10240, 262208, 131072, 1024, 6},
    {"qwen3-4b", 36, 32, 8, 128, 2560, 9728, 151936, 40960},
    {"mistral-7b", 32, 32, 8, 128, 4096, 14336, 32768, 32768},
    {"llama-3.1-8b", 32, 32, 8, 128, 4096, 14336, 128256, 131072},
};

// Of one KV head.
double head_row_bytes(const KvSpec& spec, DType key, DType value) {
  return static_cast<double>(row_bytes({1, whole_layer(spec.layers).head_dim, {}}, key, value));
}

}  // namespace

std::span<const ModelShape> known_shapes() { return kKnown; }

ModelConfig config_of(const ModelShape& shape) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "plan: " + why);
  };
  if (shape.layers < 1 || shape.kv_heads < 1 || shape.head_dim < 1 || shape.heads < 1)
    refuse(cat("a model has at least one layer and one head of one element, not ", shape.layers, " layers, ",
               shape.kv_heads, " KV heads of ", shape.head_dim));
  if (shape.heads % shape.kv_heads != 0)
    refuse(cat(shape.heads, " query heads cannot share ", shape.kv_heads, " KV heads"));
  if (shape.head_dim % 2 != 0)
    refuse(cat("heads of ", shape.head_dim, " elements cannot be rotated in pairs"));
  ModelConfig config;
  config.architecture = "llama";
  config.context_length = shape.trained;
  config.vocab = shape.vocab;
  config.width = shape.width;
  config.hidden = shape.hidden;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = config.rope_dims = shape.head_dim;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  config.ropes.emplace_back();
  for (int i = 0; i < shape.layers; ++i) {
    LayerConfig layer;
    if (shape.window > 0 && (i + 1) % shape.global_every != 0) layer.window = shape.window;
    config.layers.push_back(layer);
  }
  return config;
}

HeadTable assumed_heads(const ModelConfig& config, std::int64_t full) {
  HeadTable table;
  table.kv_heads = config.kv_heads;
  const auto layers = attention_layers(config);
  table.needs.resize(layers.size() * static_cast<std::size_t>(config.kv_heads));
  std::vector<std::size_t> global;
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    for (int head = 0;
         head < config.kv_heads && !config.layers[static_cast<std::size_t>(layers[layer])].window; ++head)
      global.push_back(layer * static_cast<std::size_t>(config.kv_heads) + static_cast<std::size_t>(head));
  const auto count = std::min<std::int64_t>(full, static_cast<std::int64_t>(global.size()));
  for (std::int64_t i = 0; i < count; ++i)
    table
        .needs[global[static_cast<std::size_t>((2 * i + 1) * static_cast<std::int64_t>(global.size()) /
                                               (2 * count))]]
        .induction = 1.0f;
  return table;
}

MemoryPlan plan_memory(const ModelConfig& config, SessionOptions options, std::int64_t tokens) {
  if (!options.procedural)
    throw Error(ErrorCode::invalid_argument, "plan: the options name no procedural memory");
  options.procedural->budget_for = tokens;
  MemoryPlan plan;
  plan.options = completed(config, options);
  const KvSpec spec = kv_spec(config, plan.options);
  plan.bytes = planned_bytes(spec);
  for (const auto& layer : spec.procedural->plans)
    for (const HeadPlan& head : layer) ++(head.full ? plan.full_heads : plan.plain_heads);
  if (const auto& stages = spec.procedural->stages; !stages.empty()) {
    plan.exact_below = stages.front().until;
    plan.kept_below = stages.back().until;
  }
  KvSpec full = spec;
  full.procedural.reset();
  full.key_type = full.value_type = DType::f16;
  plan.full_cache = kept_bytes(full, tokens);
  return plan;
}

namespace {

double latent_elements(const ModelConfig& config) {
  const LatentConfig& l = *config.latent;
  const double width = static_cast<double>(config.width), heads = config.heads;
  const auto inside = static_cast<double>(l.nope + l.rope);
  const double queries = l.query_rank > 0 ? static_cast<double>(l.query_rank) * (width + heads * inside)
                                          : width * heads * inside;
  return queries + width * config.head_dim +
         heads * static_cast<double>(l.rank * (l.nope + l.value) + l.value * config.width);
}

double attention_elements(const ModelConfig& config, int layer) {
  if (config.latent) return latent_elements(config);
  const LayerConfig& l = config.layers[static_cast<std::size_t>(layer)];
  const HeadsConfig heads = heads_of(config, layer);
  const int own = l.rows_of >= 0 ? 0 : l.values_are_keys ? 1 : 2;
  return static_cast<double>(config.width) *
         static_cast<double>((config.gated_attention ? 3 : 2) * heads.q_width() + own * heads.kv_width());
}

double mixer_elements(const ModelConfig& config, int layer) {
  const auto width = static_cast<double>(config.width);
  switch (config.layers[static_cast<std::size_t>(layer)].mixer) {
    case Mixer::none:
      return 0.0;
    case Mixer::short_convolution:
      return 4.0 * width * width;
    case Mixer::delta_net:
      return width * static_cast<double>(config.delta->channels() + 2 * config.delta->value_width());
    case Mixer::state_space:
      return width * static_cast<double>(config.state_space->channels() + 2 * config.state_space->inner());
    case Mixer::attention:
      break;
  }
  return attention_elements(config, layer);
}

double layer_elements(const ModelConfig& config, bool all_experts) {
  const double products = config.gated ? 3.0 : 2.0;
  double all = 0.0;
  for (int i = 0; i < static_cast<int>(config.layers.size()); ++i) {
    const LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
    // What a token gives to the layer goes through two matrices of it, and one before all layers.
    all += mixer_elements(config, i) + 3.0 * static_cast<double>(config.width * config.layer_inputs);
    if (!layer.feed_forward) continue;
    const bool routed = config.experts && layer.routed;
    const auto experts = routed ? (all_experts ? config.experts->count : config.experts->chosen) : 0;
    std::int64_t inside = routed ? experts * expert_width(config) + config.experts->shared : 0;
    if (!routed || config.experts->beside) inside += hidden_of(config, i);
    all += products * static_cast<double>(config.width * inside);
  }
  return all;
}

// Query heads that look at a row of one KV head, of layers with a window or without: those that share rows look, too.
double queries_of_a_row(const ModelConfig& config, bool windowed) {
  double queries = 0.0, rows = 0.0;
  for (int i = 0; i < static_cast<int>(config.layers.size()); ++i) {
    const LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
    if (layer.mixer != Mixer::attention || layer.window.has_value() != windowed) continue;
    const HeadsConfig heads = heads_of(config, i);
    queries += heads.heads;
    if (layer.rows_of < 0) rows += heads.kv_heads;
  }
  return rows > 0.0 ? queries / rows : 0.0;
}

}  // namespace

double matrix_elements(const ModelConfig& config) {
  return static_cast<double>(config.width * config.vocab) + layer_elements(config, false);
}

double stored_elements(const ModelConfig& config) {
  const double heads = config.tied_head.value_or(true) ? 1.0 : 2.0;
  const auto inputs =
      static_cast<double>(config.layer_inputs * static_cast<std::int64_t>(config.layers.size()));
  return (heads * static_cast<double>(config.width) + inputs) * static_cast<double>(config.vocab) +
         layer_elements(config, true);
}

PredictedRates predict(const ModelConfig& config, const MemoryPlan& plan, const MachineLimits& limits,
                       double weights_bytes) {
  const KvSpec spec = kv_spec(config, plan.options);
  const ProceduralBytes& b = plan.bytes;
  // As long as every row is kept there is nothing else.
  const Pos tokens = plan.options.procedural->budget_for;
  const bool every_row = plan.kept_below > tokens;
  const double kv = static_cast<double>(plan.exact_below > tokens ? plan.full_cache
                                        : every_row               ? b.exact_first - b.carried
                                                                  : b.total() - b.references - b.carried);
  const double exact = head_row_bytes(spec, spec.key_type, spec.value_type),
               old = head_row_bytes(spec, spec.procedural->plain_type, spec.procedural->plain_type),
               full = head_row_bytes(spec, spec.procedural->copy_type, spec.procedural->copy_type);
  // Of one KV head each, over all layers, as wide as those that see everything: a narrower row counts for less.
  double whole = static_cast<double>(b.window) / exact + static_cast<double>(b.compact) / old +
                 static_cast<double>(b.full) / full;
  if (every_row)
    whole = static_cast<double>(tokens) * static_cast<double>(plan.full_heads + plan.plain_heads);
  const double windowed = static_cast<double>(b.rings) / exact;
  // The output matrix is used for the last token of a text only.
  const double products =
      2.0 * (matrix_elements(config) - static_cast<double>(config.width) * static_cast<double>(config.vocab));
  const double attention =
      4.0 * config.head_dim *
      (queries_of_a_row(config, false) * whole + queries_of_a_row(config, true) * windowed);
  PredictedRates rates;
  rates.write_tok_s = limits.read_gb_s * 1e9 / (weights_bytes + kv);
  rates.full_write_tok_s = limits.read_gb_s * 1e9 / (weights_bytes + static_cast<double>(plan.full_cache));
  rates.read_tok_s = 1.0 / (products / (limits.int8_gop_s * 1e9) + attention / (limits.f32_gflop_s * 1e9));
  return rates;
}

}  // namespace kvtide
