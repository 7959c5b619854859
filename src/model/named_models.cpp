#include "model/named_models.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "base/folder_names.h"
#include "base/nearest.h"
#include "base/text.h"
#include "formats/text_file.h"
#include "kvtide/error.h"
#include "kvtide/model.h"

namespace kvtide {
namespace {

constexpr std::string_view kModelEnding = ".gguf";

// "SmolLM2-135M" and "smollm2_135m" are the same name.
std::string plain_name(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

std::string how_to_fetch(const FetchedModel& model) {
  return cat("`kvtide fetch ", model.name, "` gets ", model.title);
}

// What the user may have meant, and how to get it. A name is also compared with as many letters of longer ones, because a
// beginning is all that has to be typed.
std::string advice(const std::string& wanted, const std::vector<NamedModel>& there) {
  std::vector<std::string> words, answers;
  for (const NamedModel& model : there)
    for (const std::size_t letters : {wanted.size(), wanted.npos}) {
      words.push_back(plain_name(model.name).substr(0, letters));
      answers.push_back(cat("did you mean ", model.name, "?"));
    }
  for (const FetchedModel& model : kFetchedModels) {
    const bool begins = wanted.starts_with(model.name) || model.name.starts_with(wanted);
    if (!wanted.empty() && begins) return how_to_fetch(model);
    words.emplace_back(model.name);
    answers.push_back(cat("did you mean ", model.name, "? ", how_to_fetch(model)));
  }
  const std::vector<std::string_view> views(words.begin(), words.end());
  const auto meant = std::find(views.begin(), views.end(), nearest(wanted, views));
  if (!wanted.empty() && meant != views.end())
    return answers[static_cast<std::size_t>(meant - views.begin())];
  return cat("`kvtide models` lists what is there, `kvtide fetch ", kFetchedModels[0].name,
             "` gets a small one");
}

}  // namespace

bool is_later_part(std::string_view file) {
  const std::size_t of = file.rfind("-of-");
  constexpr std::size_t kDigits = 5;
  return of != file.npos && of >= kDigits + 1 && file[of - kDigits - 1] == '-' &&
         file.substr(of - kDigits, kDigits).find_first_not_of("0123456789") == file.npos &&
         file.substr(of - kDigits, kDigits) != "00001";
}

std::vector<NamedModel> models_in(const std::string& folder) {
  std::vector<NamedModel> models;
  for (const std::string& file : names_in(folder)) {
    const std::string path = cat(folder, "/", file);
    if (file.starts_with(".")) continue;
    if (file.ends_with(kModelEnding) && file_exists(path) && !is_later_part(file))
      models.push_back({file.substr(0, file.size() - kModelEnding.size()), path});
    else if (is_folder(path) && file_exists(path + "/config.json"))
      models.push_back({file, path});
  }
  std::sort(models.begin(), models.end(),
            [](const NamedModel& a, const NamedModel& b) { return a.name < b.name; });
  return models;
}

bool names_a_path(const std::string& model) {
  struct stat info {};
  return model.empty() || model.find('/') != model.npos || model.ends_with(kModelEnding) ||
         ::stat(model.c_str(), &info) == 0;
}

std::string model_path(const std::string& name, const std::string& folder) {
  if (names_a_path(name)) return name;
  const std::string wanted = plain_name(name);
  const std::vector<NamedModel> models = models_in(folder);
  std::vector<NamedModel> fitting;
  for (const NamedModel& model : models) {
    if (plain_name(model.name) == wanted) return model.path;
    if (!wanted.empty() && plain_name(model.name).starts_with(wanted)) fitting.push_back(model);
  }
  if (fitting.size() == 1) return fitting.front().path;
  if (fitting.empty())
    throw Error(
        ErrorCode::not_found,
        cat(name, ": there is no such file, and ",
            folder.empty() ? std::string("no folder for models: neither KVTIDE_MODELS, XDG_CACHE_HOME nor "
                                         "HOME is set")
                           : cat("no model of that name in ", folder),
            "; ", advice(wanted, models)));
  std::string list;
  for (const NamedModel& model : fitting) list += cat(list.empty() ? "" : ", ", model.name);
  throw Error(ErrorCode::invalid_argument, cat(name, ": several models begin so: ", list));
}

}  // namespace kvtide
