#include "shards/tokenizer_export.h"

#include <filesystem>

#include "base/checksum.h"
#include "base/file.h"
#include "base/json/json_fields.h"
#include "base/text.h"
#include "formats/gguf_writer.h"
#include "formats/text_file.h"
#include "kvtide/error.h"
#include "model/folder_vocab.h"

namespace kvtide {
namespace {

constexpr const char* kVocabularyFile = "vocabulary.gguf";

FileEntry save(const std::string& folder, const std::string& name, std::span<const std::byte> bytes) {
  FileEntry entry{cat("tokenizer/", name), bytes.size(), crc32c(bytes)};
  PosixFiles files;
  save_file(files, cat(folder, "/", entry.file), {&bytes, 1});
  return entry;
}

std::vector<std::byte> vocabulary_file(const VocabSpec& spec, const std::string& chat_template) {
  GgufWriter out;
  out.add("general.architecture", "vocabulary")
      .add("tokenizer.ggml.model", spec.kind == VocabSpec::Kind::sentencepiece ? "llama" : "gpt2")
      .add("tokenizer.ggml.pre", std::string_view(spec.pre))
      .add("tokenizer.ggml.tokens", std::span(spec.tokens));
  if (!spec.types.empty()) {
    std::vector<std::int32_t> types;
    for (const TokenType type : spec.types) types.push_back(static_cast<std::int32_t>(type));
    out.add("tokenizer.ggml.token_type", std::span<const std::int32_t>(types));
  }
  if (spec.kind == VocabSpec::Kind::sentencepiece)
    out.add("tokenizer.ggml.scores", std::span<const float>(spec.scores));
  else
    out.add("tokenizer.ggml.merges", std::span(spec.merges));
  const auto id = [&](const char* key, const std::optional<TokenId>& value) {
    if (value) out.add(key, static_cast<std::uint32_t>(*value));
  };
  id("tokenizer.ggml.bos_token_id", spec.bos);
  id("tokenizer.ggml.eos_token_id", spec.eos);
  id("tokenizer.ggml.eot_token_id", spec.eot);
  id("tokenizer.ggml.unknown_token_id", spec.unk);
  out.add("tokenizer.ggml.add_bos_token", spec.add_bos)
      .add("tokenizer.ggml.add_eos_token", spec.add_eos)
      .add("tokenizer.ggml.add_space_prefix", spec.add_space_prefix);
  if (!chat_template.empty()) out.add("tokenizer.chat_template", std::string_view(chat_template));
  return out.bytes();
}

}  // namespace

void export_tokenizer(const Checkpoint& checkpoint, const std::string& model, const std::string& folder,
                      ShardManifest& manifest) {
  std::error_code failure;
  std::filesystem::create_directory(folder + "/tokenizer", failure);
  if (failure)
    throw Error(ErrorCode::io, cat(folder, "/tokenizer: cannot make this folder: ", failure.message()));
  if (!is_folder(model)) {
    manifest.tokenizer = "gguf";
    manifest.tokenizer_files = {
        save(folder, kVocabularyFile, vocabulary_file(checkpoint.vocabulary(), checkpoint.chat_template()))};
    return;
  }
  manifest.tokenizer = "folder";
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "chat_template.json"}) {
    const std::string path = cat(model, "/", name);
    if (!file_exists(path)) continue;
    const std::string text = read_whole_text(path);
    manifest.tokenizer_files.push_back(save(folder, name, std::as_bytes(std::span(text))));
  }
}

Tokenizer open_shard_tokenizer(const std::string& folder, const ShardManifest& manifest) {
  const std::string path = folder + "/tokenizer";
  if (manifest.tokenizer == "gguf") return open_tokenizer(cat(path, "/", kVocabularyFile));
  const std::string config_path = path + "/config.json";
  const JsonValue json = JsonValue::parse(read_whole_text(config_path), config_path);
  FolderVocab vocabulary(path, JsonFields(json, config_path), manifest.config.vocab);
  vocabulary.fill_up(manifest.config.vocab);  // the heads may choose ids that no token has
  return Tokenizer(vocabulary.spec());
}

}  // namespace kvtide
