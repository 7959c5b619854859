#include "model/arch/gemma4_layers.h"

#include <cmath>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "kvtide/error.h"

namespace kvtide::gemma4 {
namespace {

void share_rows(const std::string& file, std::int64_t shared, ModelConfig& config) {
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
}

void check_layers(const std::string& file, const ModelConfig& config) {
  for (int i = 0; i < static_cast<int>(config.layers.size()); ++i) {
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

}  // namespace

void set_common(ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  config.activation = Activation::gelu;
  config.head_norms = config.value_norm = config.post_norms = true;
  config.attention_scale = 1.0f;
}

void set_layers(const std::string& file, const HeadsConfig& sliding, std::int64_t shared,
                ModelConfig& config) {
  for (LayerConfig& layer : config.layers) {
    if (!layer.window) continue;
    layer.rope = 1;
    layer.kv_heads = sliding.kv_heads;
    layer.head_dim = sliding.head_dim;
  }
  share_rows(file, shared, config);
  check_layers(file, config);
}

void add_experts(const std::string& file, ExpertsConfig experts, ModelConfig& config) {
  experts.shares_sum_to_1 = experts.beside = true;
  check_experts(file, experts);
  config.experts = experts;
}

}  // namespace kvtide::gemma4
