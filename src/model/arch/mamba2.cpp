// mamba2.cpp: Mamba-2: one recurrence a layer (state_space.h) and nothing else: no attention, no feed-forward, no rows.
#include "base/text.h"
#include "model/arch/architectures.h"
#include "model/arch/mamba_fields.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::mamba2 {
namespace {

constexpr std::int64_t kWide = std::int64_t{1} << 20, kAnyLength = std::int64_t{1} << 20;

void set_layers(ModelConfig& config) {
  for (LayerConfig& layer : config.layers) {
    layer.mixer = Mixer::state_space;
    layer.feed_forward = false;
  }
}

void adjust(const GgufFile& file, ModelConfig& config) {
  set_layers(config);
  read_state_space(file, config);
}

constexpr StateSpaceKeys kKeys = {.heads = "num_heads",
                                  .head_dim = "head_dim",
                                  .state = "state_size",
                                  .groups = "n_groups",
                                  .taps = "conv_kernel",
                                  .biased = "use_bias",
                                  .conv_biased = "use_conv_bias"};

void read(const JsonFields& json, ModelConfig& config) {
  config.context_length = kAnyLength;  // there are no positions
  config.width = json.count("hidden_size", 1, kWide);
  config.norm_epsilon = static_cast<float>(json.real("layer_norm_epsilon", 1e-12, 1e-1, 1e-5));
  config.layers.resize(static_cast<std::size_t>(json.count("num_hidden_layers", 1, 1024)));
  config.vocab = json.count("vocab_size", 1, std::int64_t{1} << 24);
  config.tied_head = json.flag("tie_word_embeddings", false);
  require_silu(json);
  require_absent_or(json, "norm_before_gate", false);
  require_absent_or(json, "rms_norm", true);
  set_layers(config);
  read_state_space(json, kKeys, config);
}

constexpr std::string_view kTypes[] = {"mamba2"};
constexpr std::string_view kPrefixes[] = {"backbone.", "model.backbone."};

constexpr auto kGguf = joined(kGgufStateSpace, kGgufTensors);

}  // namespace
}  // namespace kvtide::mamba2

namespace kvtide {

const Architecture kMamba2{"mamba2",      &mamba2::adjust,     mamba2::kGguf,     mamba2::kTypes,
                           &mamba2::read, kBackboneStateSpace, mamba2::kPrefixes, {},
                           true};

}  // namespace kvtide
