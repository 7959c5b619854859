#include "model/checkpoint.h"

#include "base/json/json_fields.h"
#include "formats/gguf.h"
#include "formats/text_file.h"
#include "model/config_file.h"
#include "model/folder_vocab.h"
#include "model/read_config.h"
#include "model/vocab_reader.h"

namespace kvtide {

std::optional<StoredTensor> Checkpoint::find(Role role, int layer, int expert) const {
  for (const TensorRule& rule : rules_) {
    if (rule.role != role) continue;
    if (rule.last_only && layer + 1 != static_cast<int>(config_.layers.size())) continue;
    auto tensor = find_named(name_of(rule, layer, expert));
    if (!tensor) continue;
    tensor->rule = rule;
    return tensor;
  }
  return std::nullopt;
}

std::string Checkpoint::wanted_name(Role role, int layer, int expert) const {
  for (const TensorRule& rule : rules_)
    if (rule.role == role) return name_of(rule, layer, expert);
  return "(this architecture names none in this format)";
}

std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path, MappedFile::Mode mode) {
  return is_folder(path) ? open_folder(path, mode) : open_gguf(path, mode);
}

Tokenizer open_tokenizer(const std::string& path, MappedFile::Mode mode) {
  if (!is_folder(path)) {
    const GgufFile file(path, mode);
    return Tokenizer(read_vocab(file));
  }
  const std::string config_path = path + "/config.json";
  const JsonValue json = read_config_file(config_path);
  const JsonFields config(json, config_path);
  return Tokenizer(FolderVocab(path, config, read_config(config).vocab).spec());
}

}  // namespace kvtide
