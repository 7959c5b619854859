#include "cli/commands/models_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/text.h"
#include "cli/commands/cache_folder.h"
#include "cli/output/file_kind.h"
#include "kvtide/error.h"
#include "kvtide/model.h"
#include "model/named_models.h"

namespace kvtide {
namespace {

std::string path_of(const std::string& model, const Arguments& arguments) {
  std::error_code failure;
  if (std::filesystem::exists(model, failure)) return model;
  try {
    if (const auto stored = stored_model(model, model_stores())) return *stored;
    if (names_a_path(model)) return model;
    return model_path(model, models_folder(arguments));
  } catch (const Error& error) {
    throw Error(error.code(), cat("-m ", error.message()));
  }
}

}  // namespace

// python/kvtide/_models_folder.py says the same of Python's environment.
std::string models_folder(const Arguments& arguments) {
  if (!arguments.folder.empty()) return arguments.folder;
  if (const char* own = std::getenv("KVTIDE_MODELS"); own != nullptr && *own != '\0') return own;
  const std::string cache = cache_place();
  if (cache.empty())
    throw Error(ErrorCode::not_found,
                "there is no folder for models: neither KVTIDE_MODELS, XDG_CACHE_HOME nor HOME is set");
  return cache + "/models";
}

// python/kvtide/_models_folder.py says the same of Python's environment.
ModelStores model_stores() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string home = variable("HOME"), cache = variable("XDG_CACHE_HOME");
  ModelStores stores;
  stores.hugging_face = variable("HF_HUB_CACHE");
  if (stores.hugging_face.empty()) {
    std::string hub = variable("HF_HOME");
    if (hub.empty() && !cache.empty()) hub = cache + "/huggingface";
    if (hub.empty() && !home.empty()) hub = home + "/.cache/huggingface";
    if (!hub.empty()) stores.hugging_face = hub + "/hub";
  }
  stores.ollama = variable("OLLAMA_MODELS");
  if (stores.ollama.empty()) {
    constexpr const char* kService = "/usr/share/ollama/.ollama/models";  // of the service on Linux
    if (!home.empty()) stores.ollama = home + "/.ollama/models";
    std::error_code failure;
    if (!std::filesystem::exists(stores.ollama, failure) && std::filesystem::exists(kService, failure))
      stores.ollama = kService;
  }
  if (!home.empty()) stores.lmstudio = home + "/.lmstudio/models";
  return stores;
}

void find_models(Arguments& arguments) {
  arguments.model = path_of(arguments.model, arguments);
  check_is_model(arguments.model);
  for (std::string& model : arguments.models) {
    model = path_of(model, arguments);
    check_is_model(model);
  }
}

}  // namespace kvtide
