#include "cli/commands/models_folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

#include "base/text.h"
#include "cli/commands/cache_folder.h"
#include "formats/text_file.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::string_view kModelEnding = ".gguf";

struct CloseModels {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// "SmolLM2-135M" and "smollm2_135m" are the same name.
std::string plain_name(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

// A later part of a split model: "...-00002-of-00003.gguf".
bool is_later_part(std::string_view file) {
  const std::size_t of = file.rfind("-of-");
  constexpr std::size_t kDigits = 5;
  return of != file.npos && of >= kDigits + 1 && file[of - kDigits - 1] == '-' &&
         file.substr(of - kDigits, kDigits).find_first_not_of("0123456789") == file.npos &&
         file.substr(of - kDigits, kDigits) != "00001";
}

bool names_a_path(const std::string& model) {
  struct stat info {};
  return model.empty() || model.find('/') != model.npos || model.ends_with(kModelEnding) ||
         ::stat(model.c_str(), &info) == 0;
}

std::string find_model(const std::string& name, const Arguments& arguments) {
  const std::string folder = models_folder(arguments), wanted = plain_name(name);
  std::vector<FoundModel> fitting;
  for (const FoundModel& model : models_in(folder)) {
    if (plain_name(model.name) == wanted) return model.path;
    if (!wanted.empty() && plain_name(model.name).starts_with(wanted)) fitting.push_back(model);
  }
  if (fitting.size() == 1) return fitting.front().path;
  if (fitting.empty())
    throw Error(ErrorCode::not_found,
                cat("-m ", name, ": there is no such file, and no model of that name in ", folder,
                    "; `kvtide models` lists what is there, `kvtide fetch smollm2` gets a small one"));
  std::string list;
  for (const FoundModel& model : fitting) list += cat(list.empty() ? "" : ", ", model.name);
  throw Error(ErrorCode::invalid_argument, cat("-m ", name, ": several models begin so: ", list));
}

}  // namespace

std::string models_folder(const Arguments& arguments) {
  if (!arguments.folder.empty()) return arguments.folder;
  if (const char* own = std::getenv("KVTIDE_MODELS"); own != nullptr && *own != '\0') return own;
  const std::string cache = cache_place();
  if (cache.empty())
    throw Error(ErrorCode::not_found,
                "there is no folder for models: neither KVTIDE_MODELS, XDG_CACHE_HOME nor HOME is set");
  return cache + "/models";
}

std::vector<FoundModel> models_in(const std::string& folder) {
  std::vector<FoundModel> models;
  const std::unique_ptr<DIR, CloseModels> entries(::opendir(folder.c_str()));
  if (!entries) return models;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string file = entry->d_name, path = cat(folder, "/", file);
    if (file.starts_with(".")) continue;
    if (file.ends_with(kModelEnding) && file_exists(path) && !is_later_part(file))
      models.push_back({file.substr(0, file.size() - kModelEnding.size()), path});
    else if (is_folder(path) && file_exists(path + "/config.json"))
      models.push_back({file, path});
  }
  std::sort(models.begin(), models.end(),
            [](const FoundModel& a, const FoundModel& b) { return a.name < b.name; });
  return models;
}

void find_models(Arguments& arguments) {
  if (!names_a_path(arguments.model)) arguments.model = find_model(arguments.model, arguments);
  for (std::string& model : arguments.models)
    if (!names_a_path(model)) model = find_model(model, arguments);
}

}  // namespace kvtide
