#include "kvtide/model.h"

#include <algorithm>

#include "base/folder_names.h"
#include "base/json/json_fields.h"
#include "base/text.h"
#include "formats/text_file.h"
#include "kvtide/error.h"
#include "model/named_models.h"

namespace kvtide {
namespace {

constexpr std::string_view kHub = "hf:", kOllama = "ollama:", kLmStudio = "lmstudio:";
constexpr std::string_view kEnding = ".gguf", kModelFolder = "models--";
constexpr std::string_view kRegistry = "registry.ollama.ai", kLibrary = "library";
constexpr std::string_view kModelLayer = "application/vnd.ollama.image.model";

[[noreturn]] void refuse_name(const std::string& name, const std::string& why,
                              ErrorCode code = ErrorCode::not_found) {
  throw Error(code, cat(name, ": ", why));
}

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// A name may not lead out of the store.
void check_parts(const std::string& name, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (part.empty() || part == "." || part == ".." || part.find('\0') != part.npos)
      refuse_name(name, cat("the part ", quoted(part), " of the name makes no sense"),
                  ErrorCode::invalid_argument);
}

std::string joined(const std::vector<std::string>& parts, std::size_t from,
                   std::string_view separator = "/") {
  std::string text;
  for (std::size_t i = from; i < parts.size(); ++i) text += cat(i == from ? "" : separator, parts[i]);
  return text;
}

void add_gguf_files(const std::string& folder, const std::string& within, std::vector<std::string>& files) {
  for (const std::string& name : names_in(folder)) {
    const std::string path = cat(folder, "/", name), relative = within + name;
    if (name.ends_with(kEnding) && file_exists(path) && !is_later_part(name)) files.push_back(relative);
    constexpr long kDeepest = 3;  // folders: quantizations of large models have one each
    if (is_folder(path) && std::count(relative.begin(), relative.end(), '/') < kDeepest)
      add_gguf_files(path, relative + "/", files);
  }
}

// The GGUF files of a folder and of folders in it, of split ones the first parts.
std::vector<std::string> gguf_files(const std::string& folder) {
  std::vector<std::string> files;
  add_gguf_files(folder, "", files);
  return files;
}

// What a folder of one repository means: `file` in it, itself, or its only GGUF file.
std::string model_in(const std::string& name, const std::string& folder, const std::string& file) {
  if (!file.empty()) {
    const std::string path = cat(folder, "/", file);
    if (file_exists(path) || is_folder(path)) return path;
    refuse_name(name, cat("there is no ", quoted(file), " in ", folder));
  }
  if (file_exists(folder + "/config.json")) return folder;
  const std::vector<std::string> files = gguf_files(folder);
  if (files.size() == 1) return cat(folder, "/", files[0]);
  if (files.empty()) refuse_name(name, cat("there is neither a config.json nor a .gguf file in ", folder));
  refuse_name(name, cat("there are several files; add one of them to the name: ", joined(files, 0, ", ")),
              ErrorCode::invalid_argument);
}

std::string store_of(const std::string& name, const std::string& store, std::string_view program) {
  if (store.empty()) refuse_name(name, cat("it is not known where ", program, " keeps its models"));
  if (!is_folder(store)) refuse_name(name, cat("there is no folder ", store, " with models of ", program));
  return store;
}

// The commit that a branch or tag means, or that begins so; "" when there is none.
std::string commit_of(const std::string& folder, const std::string& revision) {
  const std::string ref = cat(folder, "/refs/", revision);
  if (file_exists(ref)) {
    std::string commit = read_whole_text(ref);
    commit.erase(std::min(commit.find_first_of("\r\n "), commit.size()));
    if (commit.find('/') == commit.npos && is_folder(cat(folder, "/snapshots/", commit))) return commit;
  }
  constexpr std::size_t kLeast = 6;
  std::vector<std::string> fitting;
  for (const std::string& commit : names_in(folder + "/snapshots"))
    if (revision.size() >= kLeast && commit.starts_with(revision)) fitting.push_back(commit);
  return fitting.size() == 1 ? fitting[0] : "";
}

std::string hub_model(const std::string& name, const ModelStores& stores) {
  const std::string store = store_of(name, stores.hugging_face, "Hugging Face");
  std::vector<std::string> parts = parts_of(std::string_view(name).substr(kHub.size()), '/');
  std::string revision = "main";
  // ORG/NAME; the oldest models have no ORG.
  const std::size_t of_name = parts.size() > 1 ? 1 : 0;
  if (const std::size_t at = parts[of_name].find('@'); at != std::string::npos) {
    revision = parts[of_name].substr(at + 1);
    parts[of_name].erase(at);
  }
  check_parts(name, parts);
  check_parts(name, parts_of(revision, '/'));
  std::string repository = parts[0];
  if (of_name > 0) repository += cat("--", parts[1]);
  const std::string folder = cat(store, "/", kModelFolder, repository);
  if (!is_folder(folder))
    refuse_name(name, cat("it is not in the cache of Hugging Face, ", store, "; `hf download ", parts[0],
                          of_name > 0 ? "/" + parts[1] : "", "` gets it"));
  const std::string commit = commit_of(folder, revision);
  if (commit.empty())
    refuse_name(name, cat("the cache has no revision ", quoted(revision), "; it has ",
                          joined(names_in(folder + "/snapshots"), 0, ", ")));
  return model_in(name, cat(folder, "/snapshots/", commit), joined(parts, of_name + 1));
}

// The file of the layer that holds the weights.
std::string blob_of(const std::string& name, const std::string& store, const std::string& manifest) {
  const JsonValue json = JsonValue::parse(read_whole_text(manifest), manifest);
  std::vector<std::string> digests;
  for (const JsonFields& layer : JsonFields(json, manifest).objects("layers"))
    if (layer.text("mediaType").value_or("") == kModelLayer) digests.push_back(layer.required_text("digest"));
  if (digests.size() != 1)
    refuse_name(name,
                cat("the manifest ", manifest, " names ", digests.size(),
                    " files of weights; kvtide reads one GGUF file"),
                ErrorCode::unsupported);
  std::string& digest = digests[0];
  std::replace(digest.begin(), digest.end(), ':', '-');
  check_parts(name, {digest});
  const std::string path = cat(store, "/blobs/", digest);
  if (digest.find('/') != std::string::npos || !file_exists(path))
    refuse_name(name, cat("the manifest ", manifest, " names a file that is not there: ", path));
  return path;
}

std::string ollama_model(const std::string& name, const ModelStores& stores) {
  const std::string store = store_of(name, stores.ollama, "Ollama");
  std::string rest = name.substr(kOllama.size()), tag = "latest";
  if (const std::size_t colon = rest.rfind(':'); colon != rest.npos && rest.find('/', colon) == rest.npos) {
    tag = rest.substr(colon + 1);
    rest.erase(colon);
  }
  std::vector<std::string> parts = parts_of(rest, '/');
  if (parts.size() < 2) parts.insert(parts.begin(), std::string(kLibrary));
  if (parts.size() < 3) parts.insert(parts.begin(), std::string(kRegistry));
  check_parts(name, parts);
  check_parts(name, parts_of(tag, '/'));
  const std::string folder = cat(store, "/manifests/", joined(parts, 0)), manifest = cat(folder, "/", tag);
  if (file_exists(manifest)) return blob_of(name, store, manifest);
  const std::vector<std::string> tags = names_in(folder);
  if (tags.empty())
    refuse_name(name, cat("Ollama has no such model in ", store, "; `ollama pull ", rest, "` gets it"));
  refuse_name(name, cat("Ollama has no tag ", quoted(tag), " of it; it has ", joined(tags, 0, ", ")));
}

std::string lmstudio_model(const std::string& name, const ModelStores& stores) {
  const std::string store = store_of(name, stores.lmstudio, "LM Studio");
  const std::vector<std::string> parts = parts_of(std::string_view(name).substr(kLmStudio.size()), '/');
  check_parts(name, parts);
  if (parts.size() < 2)
    refuse_name(name, "a model of LM Studio is called lmstudio:ORG/NAME", ErrorCode::invalid_argument);
  const std::string folder = cat(store, "/", parts[0], "/", parts[1]);
  if (!is_folder(folder)) refuse_name(name, cat("there is no ", folder));
  return model_in(name, folder, joined(parts, 2));
}

// Every name that a repository's folder has: itself, or each of its files where there are several.
void add_models(const std::string& name, const std::string& folder, std::vector<NamedModel>& models) {
  if (file_exists(folder + "/config.json")) {
    models.push_back({name, folder});
    return;
  }
  const std::vector<std::string> files = gguf_files(folder);
  for (const std::string& file : files)
    models.push_back({files.size() == 1 ? name : cat(name, "/", file), cat(folder, "/", file)});
}

void add_hub(const std::string& store, std::vector<NamedModel>& models) {
  for (const std::string& entry : names_in(store)) {
    if (!entry.starts_with(kModelFolder)) continue;
    std::string name = entry.substr(kModelFolder.size());
    if (const std::size_t dashes = name.find("--"); dashes != name.npos) name.replace(dashes, 2, "/");
    const std::string folder = cat(store, "/", entry), main = commit_of(folder, "main");
    for (const std::string& commit : names_in(folder + "/snapshots")) {
      constexpr std::size_t kShown = 12;
      const std::string shown = commit == main ? "" : "@" + commit.substr(0, kShown);
      add_models(cat(kHub, name, shown), cat(folder, "/snapshots/", commit), models);
    }
  }
}

void add_ollama(const std::string& store, std::vector<NamedModel>& models) {
  const std::string manifests = store + "/manifests";
  for (const std::string& host : names_in(manifests))
    for (const std::string& owner : names_in(cat(manifests, "/", host)))
      for (const std::string& model : names_in(cat(manifests, "/", host, "/", owner)))
        for (const std::string& tag : names_in(cat(manifests, "/", host, "/", owner, "/", model))) {
          std::string name = cat(kOllama, model, tag == "latest" ? "" : ":" + tag);
          if (host != kRegistry)
            name.insert(kOllama.size(), cat(host, "/", owner, "/"));
          else if (owner != kLibrary)
            name.insert(kOllama.size(), owner + "/");
          try {
            models.push_back(
                {name, blob_of(name, store, cat(manifests, "/", host, "/", owner, "/", model, "/", tag))});
          } catch (const Error& error) {
            if (error.code() == ErrorCode::out_of_memory) throw;  // a model that is broken is no model
          }
        }
}

void add_lmstudio(const std::string& store, std::vector<NamedModel>& models) {
  for (const std::string& owner : names_in(store))
    for (const std::string& model : names_in(cat(store, "/", owner)))
      add_models(cat(kLmStudio, owner, "/", model), cat(store, "/", owner, "/", model), models);
}

}  // namespace

std::optional<std::string> stored_model(const std::string& name, const ModelStores& stores) {
  if (name.starts_with(kHub)) return hub_model(name, stores);
  if (name.starts_with(kOllama)) return ollama_model(name, stores);
  if (name.starts_with(kLmStudio)) return lmstudio_model(name, stores);
  return std::nullopt;
}

std::vector<NamedModel> stored_models(const ModelStores& stores) {
  std::vector<NamedModel> models;
  if (!stores.hugging_face.empty()) add_hub(stores.hugging_face, models);
  if (!stores.ollama.empty()) add_ollama(stores.ollama, models);
  if (!stores.lmstudio.empty()) add_lmstudio(stores.lmstudio, models);
  std::sort(models.begin(), models.end(),
            [](const NamedModel& a, const NamedModel& b) { return a.name < b.name; });
  return models;
}

}  // namespace kvtide
