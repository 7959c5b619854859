#include "cli/commands/models_folder.h"

#include <cstdlib>

#include "base/text.h"
#include "cli/commands/cache_folder.h"
#include "cli/output/file_kind.h"
#include "kvtide/error.h"
#include "kvtide/model.h"
#include "model/named_models.h"

namespace kvtide {
namespace {

std::string path_of(const std::string& model, const Arguments& arguments) {
  if (names_a_path(model)) return model;
  const std::string folder = models_folder(arguments);
  try {
    return model_path(model, folder);
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

void find_models(Arguments& arguments) {
  arguments.model = path_of(arguments.model, arguments);
  check_is_model(arguments.model);
  for (std::string& model : arguments.models) {
    model = path_of(model, arguments);
    check_is_model(model);
  }
}

}  // namespace kvtide
