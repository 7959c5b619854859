// named_models.h: the name of a model in a folder, in the place of a path. One rule for the command line and for Python,
// which say where the folder is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvtide/model.h"

namespace kvtide {

// What `kvtide fetch` can get.
struct FetchedModel {
  std::string_view name, title;
};
inline constexpr FetchedModel kFetchedModels[] = {{"smollm2", "SmolLM2-135M-Instruct"},
                                                  {"gemma3", "Gemma-3-270M"}};

struct NamedModel {
  std::string name;  // of the file without .gguf, or of the folder
  std::string path;
};
// GGUF files (of a split one the first part) and folders with a config.json, by name.
std::vector<NamedModel> models_in(const std::string& folder);

// Whether a file is a later part of a split model: "...-00002-of-00003.gguf".
bool is_later_part(std::string_view file);

// Everything that a name of a store could mean, sorted.
std::vector<NamedModel> stored_models(const ModelStores& stores);

// What model_path (kvtide/model.h) leaves as it is.
bool names_a_path(const std::string& model);

}  // namespace kvtide
