// model_stores.h: models that other programs have on this machine: hf:ORG/NAME, ollama:NAME, lmstudio:ORG/NAME.
//
// Only looks: nothing is downloaded and nothing is written. Who calls says where the folders are.
#pragma once

#include <optional>
#include <string>

namespace kvtide {

// Folders; empty: none.
struct ModelStores {
  std::string hugging_face;  // the hub's cache: models--ORG--NAME/snapshots/...
  std::string ollama;        // manifests/HOST/OWNER/NAME/TAG and blobs/
  std::string lmstudio;      // ORG/NAME/FILE.gguf
};

// hf:ORG/NAME[@REVISION][/FILE]: a branch, a tag or the beginning of a commit; main where there is none. Without FILE
//   the folder where it has a config.json, else the GGUF file where there is one only.
// ollama:[[HOST/]OWNER/]NAME[:TAG]: the file behind the manifest; tag latest where there is none.
// lmstudio:ORG/NAME[/FILE]: likewise.
// The path of what `name` means; nullopt where it begins with none of these words. Throws Error: not_found (it names the
// folder that was looked in), invalid_argument (several files, all of which are listed; a name that makes no sense),
// bad_format (a manifest), unsupported (a model in parts that are not files of their own).
std::optional<std::string> stored_model(const std::string& name, const ModelStores& stores);

}  // namespace kvtide
