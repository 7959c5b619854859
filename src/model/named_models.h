// named_models.h: the name of a model in a folder, in the place of a path. One rule for the command line and for Python,
// which say where the folder is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

// What model_path (kvtide/model.h) leaves as it is.
bool names_a_path(const std::string& model);

}  // namespace kvtide
