#include "model/read_config.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
#include "model/arch/architectures.h"
#include "model/config/gguf_config.h"

namespace kvtide {
namespace {

const Architecture& find_architecture(const GgufFile& file) {
  const auto name = file.get_string("general.architecture");
  if (!name)
    throw Error(ErrorCode::bad_format, cat(file.path(), ": the key 'general.architecture' is missing"));
  std::string known;
  for (const Architecture* candidate : kArchitectures) {
    if (candidate->name == *name) return *candidate;
    known += cat(known.empty() ? "" : ", ", candidate->name);
  }
  throw Error(ErrorCode::unsupported,
              cat(file.path(), ": architecture ", quoted(*name), " is not supported; kvtide runs: ", known));
}

}  // namespace

namespace {

// Files of models without attention and feed-forward say 0; others must not.
void refuse_zeros(const GgufFile& file, const Architecture& architecture, const ModelConfig& config) {
  if (architecture.recurrent_only) return;
  const auto refuse = [&](const char* key) {
    throw Error(ErrorCode::bad_format,
                cat(file.path(), ": '", architecture.name, ".", key, "' is 0; it must be at least 1"));
  };
  if (config.heads == 0) refuse("attention.head_count");
  if (config.hidden == 0) refuse("feed_forward_length");
  for (const LayerConfig& layer : config.layers)
    if (!layer.feed_forward && !architecture.single_blocks) refuse("feed_forward_length' of a layer");
}

}  // namespace

ModelConfig read_config(const GgufFile& file) {
  const Architecture& architecture = find_architecture(file);
  ModelConfig config;
  config.architecture = architecture.name;
  read_common(file, architecture.uneven, config);
  refuse_zeros(file, architecture, config);
  architecture.adjust(file, config);
  const auto other = [](const LayerConfig& layer) { return layer.mixer != Mixer::attention; };
  if (!carries(config) && std::any_of(config.layers.begin(), config.layers.end(), other))
    throw Error(ErrorCode::unsupported,
                cat(file.path(), ": layers with 0 KV heads are not supported of ", architecture.name));
  return config;
}

ModelConfig read_config(const JsonFields& json) {
  const auto type = json.text("model_type");
  if (!type) json.refuse(ErrorCode::bad_format, "the key 'model_type' is missing");
  std::string known;
  for (const Architecture* architecture : kArchitectures)
    for (const std::string_view name : architecture->model_types) {
      known += cat(known.empty() ? "" : ", ", name);
      if (name != *type) continue;
      ModelConfig config;
      config.architecture = architecture->name;
      architecture->read(json, config);
      return config;
    }
  json.refuse(ErrorCode::unsupported,
              cat("model_type ", quoted(*type), " is not supported; kvtide runs: ", known));
}

}  // namespace kvtide
