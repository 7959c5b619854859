// models_folder.h: the folder of models that have names: where `kvtide fetch` puts them and -m finds them.
#pragma once

#include <string>

#include "cli/arguments/arguments.h"
#include "kvtide/model.h"

namespace kvtide {

// --dir, $KVTIDE_MODELS, or kvtide/models in the cache folder. Throws Error(not_found) where there is none of them.
std::string models_folder(const Arguments& arguments);

// Where other programs keep their models: $HF_HUB_CACHE, $HF_HOME, $OLLAMA_MODELS, or where they do without these.
ModelStores model_stores();

// Puts a path in the place of every -m that is no path but the name of a model in the folder (model_path, kvtide/model.h) or
// of one that another program has (stored_model, kvtide/model.h). What exists under that name comes first.
// Throws Error: not_found, invalid_argument.
void find_models(Arguments& arguments);

}  // namespace kvtide
