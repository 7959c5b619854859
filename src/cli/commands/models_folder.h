// models_folder.h: the folder of models that have names: where `kvtide fetch` puts them and -m finds them.
#pragma once

#include <string>

#include "cli/arguments/arguments.h"

namespace kvtide {

// --dir, $KVTIDE_MODELS, or kvtide/models in the cache folder. Throws Error(not_found) where there is none of them.
std::string models_folder(const Arguments& arguments);

// Puts a path in the place of every -m that is no path but the name of a model in the folder (model_path, kvtide/model.h).
// Throws Error: not_found, invalid_argument.
void find_models(Arguments& arguments);

}  // namespace kvtide
