// olmo2.cpp: OLMo 2 and 3. What differs from Llama: no norm before attention and feed-forward, but one behind
// each; all query heads of a token are normed together, and all key heads; OLMo 3 has windows in three of four
// layers, whose rotation is never scaled. GGUF files call both olmo2.
#include <algorithm>

#include "base/text.h"
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::olmo2 {
namespace {

constexpr std::int64_t kPattern = 4;  // of OLMo 3: layer i is global when (i + 1) % 4 == 0
constexpr double kBase = 500000.0;

void set_common(ModelConfig& config) {
  config.pre_norms = false;
  config.post_norms = true;
  config.head_norms = true;
  config.heads_normed_together = true;
}

void adjust(const GgufFile& file, ModelConfig& config) {
  set_common(config);
  const auto window = read_count(file, "attention.sliding_window", 0, std::int64_t{1} << 31, 0);
  if (window == 0) return;
  const auto listed = file.get_ints("olmo2.attention.sliding_window_pattern");
  if (listed && listed->size() != config.layers.size())
    throw Error(ErrorCode::bad_format, cat(file.path(), ": 'olmo2.attention.sliding_window_pattern' has ",
                                           listed->size(), " entries for ", config.layers.size(), " layers"));
  RopeConfig near;
  near.base = config.ropes[0].base;
  config.ropes.push_back(near);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const bool slides = listed ? (*listed)[i] != 0 : (static_cast<std::int64_t>(i) + 1) % kPattern != 0;
    if (!slides) continue;
    config.layers[i].window = window;
    config.layers[i].rope = 1;
  }
}

// Rotations by the type of the layer, or one, which scales only layers that see everything.
void read_rotations(const JsonFields& json, ModelConfig& config) {
  const auto ropes = json.child("rope_parameters");
  const auto whole = ropes ? ropes->child("full_attention") : std::nullopt;
  const auto near = ropes ? ropes->child("sliding_attention") : std::nullopt;
  config.ropes.push_back(whole ? read_rope_object(*whole, config, kBase)
                               : read_folder_rope(json, config, kBase));
  RopeConfig unscaled;
  unscaled.base = config.ropes[0].base;
  config.ropes.push_back(near ? read_rope_object(*near, config, unscaled.base) : unscaled);
  for (LayerConfig& layer : config.layers) layer.rope = layer.window ? 1 : 0;
}

void read(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  require_silu(json);
  set_common(config);
  if (json.text("model_type") == "olmo2") {
    config.ropes = {read_folder_rope(json, config, kBase)};
    return;
  }
  if (json.has("layer_types")) {
    read_windows(json, config, 0);
  } else {
    const auto window = json.count("sliding_window", 1, std::int64_t{1} << 31, 4096);
    for (std::size_t i = 0; i < config.layers.size(); ++i)
      if ((static_cast<std::int64_t>(i) + 1) % kPattern != 0) config.layers[i].window = window;
  }
  read_rotations(json, config);
}

constexpr std::string_view kTypes[] = {"olmo2", "olmo3"};

constexpr TensorRule kPostNorms[] = {
    {Role::attention_post_norm, "model.layers.*.post_attention_layernorm.weight"},
    {Role::feed_forward_post_norm, "model.layers.*.post_feedforward_layernorm.weight"},
};
constexpr auto kFolder = joined(kPostNorms, kLlamaFolderTensors);

}  // namespace
}  // namespace kvtide::olmo2

namespace kvtide {

const Architecture kOlmo2{"olmo2",       &olmo2::adjust, kGgufTensors,  //
                          olmo2::kTypes, &olmo2::read,   olmo2::kFolder};

}  // namespace kvtide
