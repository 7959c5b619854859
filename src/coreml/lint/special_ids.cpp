// special_ids.cpp: the ids of config.json are the tokens of tokenizer.json.

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/json/json_fields.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "coreml/lint/rules.h"

namespace kvtide::coreml {
namespace {

namespace fs = std::filesystem;

std::optional<JsonValue> json_of(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  const MappedFile file(path);
  return JsonValue::parse({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

struct KnownToken {
  std::int64_t id = 0;
  std::string content;
  bool special = false;
};

struct KnownTokens {
  std::vector<KnownToken> added;
  std::map<std::string, std::int64_t> ids;
  std::int64_t largest = -1;

  const KnownToken* added_with(std::int64_t id) const {
    for (const KnownToken& token : added)
      if (token.id == id) return &token;
    return nullptr;
  }
};

void add_token(KnownTokens& tokens, const std::string& content, std::int64_t id) {
  tokens.ids[content] = id;
  tokens.largest = std::max(tokens.largest, id);
}

KnownTokens tokens_of(const JsonValue& tokenizer) {
  KnownTokens tokens;
  const JsonValue* model = tokenizer.find("model");
  const JsonValue* vocabulary = model ? model->find("vocab") : nullptr;
  if (vocabulary && vocabulary->object())
    for (const auto& [content, id] : *vocabulary->object())
      if (id.integer()) add_token(tokens, content, *id.integer());
  if (vocabulary && vocabulary->list())  // pairs of a piece and its score
    for (std::size_t i = 0; i < vocabulary->list()->size(); ++i) {
      const JsonValue& pair = (*vocabulary->list())[i];
      if (pair.list() && !pair.list()->empty() && pair.list()->front().text())
        add_token(tokens, *pair.list()->front().text(), static_cast<std::int64_t>(i));
    }
  const JsonValue* added = tokenizer.find("added_tokens");
  if (added && added->list())
    for (const JsonValue& entry : *added->list()) {
      const JsonValue *id = entry.find("id"), *content = entry.find("content"),
                      *special = entry.find("special");
      if (!id || !id->integer() || !content || !content->text()) continue;
      tokens.added.push_back(
          {*id->integer(), *content->text(), special && special->boolean() && *special->boolean()});
      add_token(tokens, *content->text(), *id->integer());
    }
  return tokens;
}

std::vector<std::int64_t> ids_of(const JsonValue& config, const char* key) {
  std::vector<std::int64_t> ids;
  const JsonValue* value = config.find(key);
  if (value && value->integer()) ids.push_back(*value->integer());
  if (value && value->list())
    for (const JsonValue& id : *value->list())
      if (id.integer()) ids.push_back(*id.integer());
  return ids;
}

// "eos_token" of tokenizer_config.json: a string, or an object with its content.
std::optional<std::string> named_token(const std::optional<JsonValue>& config, const char* key) {
  const JsonValue* token = config ? config->find(key) : nullptr;
  if (token && token->object()) token = token->find("content");
  return token && token->text() ? std::optional(*token->text()) : std::nullopt;
}

Finding id_finding(Severity severity, std::string message) {
  return {severity, "special-ids", "", "", 0, std::move(message)};
}

}  // namespace

void check_special_ids(const std::string& folder, Findings& findings) {
  const auto config = json_of(folder, "config.json"), tokenizer = json_of(folder, "tokenizer.json");
  if (!config || !tokenizer) return;
  const auto named = json_of(folder, "tokenizer_config.json");
  const KnownTokens tokens = tokens_of(*tokenizer);
  for (const char* kind : {"bos_token", "eos_token", "pad_token"}) {
    const std::string key = cat(kind, "_id");
    const auto ids = ids_of(*config, key.c_str());
    for (const std::int64_t id : ids)
      if (id > tokens.largest)
        findings.push_back(
            id_finding(Severity::error, cat("config.json says ", key, " ", id,
                                            ", and tokenizer.json has the ids 0 to ", tokens.largest)));
    const auto content = named_token(named, kind);
    if (ids.empty() || !content || !tokens.ids.contains(*content)) continue;
    const std::int64_t id = tokens.ids.at(*content);
    if (std::find(ids.begin(), ids.end(), id) == ids.end() && ids.front() <= tokens.largest)
      findings.push_back(
          id_finding(Severity::warning, cat("config.json says ", key, " ", ids.front(), ", and the ", kind,
                                            " ", quoted(*content), " of tokenizer_config.json is ", id)));
  }
}

}  // namespace kvtide::coreml
