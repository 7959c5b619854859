// models_folder.h: the folder of models that have names: where `kvtide fetch` puts them and -m finds them.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments/arguments.h"

namespace kvtide {

// --dir, $KVTIDE_MODELS, or kvtide/models in the cache folder. Throws Error(not_found) where there is none of them.
std::string models_folder(const Arguments& arguments);

struct FoundModel {
  std::string name;  // of the file without .gguf, or of the folder
  std::string path;
};
// GGUF files (of a split one the first part) and folders with a config.json, by name.
std::vector<FoundModel> models_in(const std::string& folder);

// Puts a path in the place of every -m that is no path but the name of a model in the folder, or its beginning:
// capitals, dashes and dots do not count. Throws Error: not_found, invalid_argument (several begin so).
void find_models(Arguments& arguments);

}  // namespace kvtide
