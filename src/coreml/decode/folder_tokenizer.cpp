#include "coreml/decode/folder_tokenizer.h"

#include <cstdint>

#include "base/json/json_fields.h"
#include "formats/text_file.h"
#include "model/folder_vocab.h"

namespace kvtide::coreml {

Tokenizer tokenizer_of(const std::string& folder) {
  // A package does not say how many rows its embedding has; ids that it lacks are refused by its gather.
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
  const std::string path = folder + "/config.json";
  const JsonValue json = JsonValue::parse(file_exists(path) ? read_whole_text(path) : "{}", path);
  const JsonFields config(json, path);
  const std::int64_t size = config.count("vocab_size", 1, kMostTokens, kMostTokens);
  return Tokenizer(FolderVocab(folder, config, size).spec());
}

}  // namespace kvtide::coreml
