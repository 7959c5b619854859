#include "model/config/config.h"

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "kvtide/error.h"

namespace kvtide {

void check_heads(const std::string& file, const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0)
    throw Error(ErrorCode::bad_format,
                cat(file, ": ", config.heads, " query heads cannot share ", config.kv_heads,
                    " KV heads: the second number must divide the first"));
  if (config.heads / config.kv_heads > kQueryBlock)
    throw Error(ErrorCode::unsupported,
                cat(file, ": ", config.heads / config.kv_heads, " query heads per KV head; at most ",
                    kQueryBlock, " are supported"));
}

std::vector<int> attention_layers(const ModelConfig& config) {
  std::vector<int> layers;
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    if (config.layers[i].mixer == Mixer::attention && config.layers[i].rows_of < 0)
      layers.push_back(static_cast<int>(i));
  return layers;
}

HeadsConfig heads_of(const ModelConfig& config, int layer) {
  const LayerConfig& l = config.layers[static_cast<std::size_t>(layer)];
  return {config.heads, l.kv_heads > 0 ? l.kv_heads : config.kv_heads,
          l.head_dim > 0 ? l.head_dim : config.head_dim};
}

bool even_layers(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers)
    if (layer.rows_of >= 0 || (layer.kv_heads > 0 && layer.kv_heads != config.kv_heads) ||
        (layer.head_dim > 0 && layer.head_dim != config.head_dim))
      return false;
  return true;
}

std::int64_t hidden_of(const ModelConfig& config, int layer) {
  const std::int64_t own = config.layers[static_cast<std::size_t>(layer)].hidden;
  return own > 0 ? own : config.hidden;
}

int rope_dims_of(const ModelConfig& config, int rope) {
  const int own = config.ropes[static_cast<std::size_t>(rope)].dims;
  return own > 0 ? own : config.rope_dims;
}

void check_experts(const std::string& file, const ExpertsConfig& experts) {
  if (experts.chosen > experts.count)
    throw Error(ErrorCode::bad_format, cat(file, ": a token chooses ", experts.chosen, " of ", experts.count,
                                           " experts: the first number must not exceed the second"));
  if (experts.groups_chosen > experts.groups || experts.count % experts.groups != 0 ||
      (experts.groups > 1 && experts.count / experts.groups < 2) ||
      experts.chosen > experts.count / experts.groups * experts.groups_chosen)
    throw Error(ErrorCode::bad_format,
                cat(file, ": ", experts.chosen, " experts of ", experts.groups_chosen, " among ",
                    experts.groups, " groups of ", experts.count, " experts cannot be chosen"));
}

void check_delta_net(const std::string& file, const DeltaNetConfig& net) {
  if (net.value_heads % net.key_heads != 0)
    throw Error(ErrorCode::bad_format,
                cat(file, ": ", net.value_heads, " value heads cannot share ", net.key_heads,
                    " key heads of linear attention: the second number must divide the first"));
}

void check_state_space(const std::string& file, const StateSpaceConfig& space) {
  if (space.heads % space.groups != 0)
    throw Error(ErrorCode::bad_format, cat(file, ": ", space.heads, " heads of Mamba-2 cannot share ",
                                           space.groups, " groups: the second number must divide the first"));
}

}  // namespace kvtide
