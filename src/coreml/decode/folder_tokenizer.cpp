#include "coreml/decode/folder_tokenizer.h"

#include <cstdint>
#include <filesystem>

#include "base/json/json_fields.h"
#include "formats/text_file.h"
#include "model/checkpoint.h"
#include "model/folder_vocab.h"

namespace kvtide::coreml {

Tokenizer tokenizer_of(const std::string& path) {
  if (std::filesystem::is_regular_file(path)) return open_tokenizer(path);
  // A package does not say how many rows its embedding has; ids that it lacks are refused by its gather.
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
  const std::string file = path + "/config.json";
  const JsonValue json = JsonValue::parse(file_exists(file) ? read_whole_text(file) : "{}", file);
  const JsonFields config(json, file);
  const std::int64_t size = config.count("vocab_size", 1, kMostTokens, kMostTokens);
  return Tokenizer(FolderVocab(path, config, size).spec());
}

}  // namespace kvtide::coreml
