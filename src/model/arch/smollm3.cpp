// smollm3.cpp: SmolLM3. What differs from Llama: some layers rotate nothing (NoPE), by default every fourth.
// Folders list them (no_rope_layers: 1 rotates), GGUF files take them for known.
#include "base/text.h"
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::smollm3 {
namespace {

constexpr std::int64_t kInterval = 4;  // layer i is still when (i + 1) % 4 == 0

void keep_still(ModelConfig& config, std::size_t layer) {
  if (config.ropes.size() == 1) {
    RopeConfig still;
    still.still = true;
    config.ropes.push_back(still);
  }
  config.layers[layer].rope = 1;
}

void keep_still_every(ModelConfig& config, std::int64_t interval) {
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    if ((static_cast<std::int64_t>(i) + 1) % interval == 0) keep_still(config, i);
}

void adjust(const GgufFile&, ModelConfig& config) {
  config.rope_interleaved = true;
  keep_still_every(config, kInterval);
}

void read(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  require_silu(json);
  config.tied_head = json.flag("tie_word_embeddings", true);
  config.ropes = {read_folder_rope(json, config, 2e6)};
  if (json.flag("use_sliding_window", false)) read_windows(json, config, 0);
  if (!json.has("no_rope_layers"))
    return keep_still_every(config, json.count("no_rope_layer_interval", 1, 1024, kInterval));
  const auto turned = json.numbers<std::vector<std::int64_t>>("no_rope_layers", 0, 1);
  if (turned.size() != config.layers.size())
    json.refuse(ErrorCode::bad_format, cat("'no_rope_layers' has ", turned.size(), " entries for ",
                                           config.layers.size(), " layers"));
  for (std::size_t i = 0; i < turned.size(); ++i)
    if (turned[i] == 0) keep_still(config, i);
}

constexpr std::string_view kTypes[] = {"smollm3"};

}  // namespace
}  // namespace kvtide::smollm3

namespace kvtide {

const Architecture kSmolLm3{"smollm3",       &smollm3::adjust, kGgufTensors,
                            smollm3::kTypes, &smollm3::read,   kLlamaFolderTensors};

}  // namespace kvtide
