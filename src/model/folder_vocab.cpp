#include "model/folder_vocab.h"

#include <algorithm>
#include <span>

#include "base/text.h"
#include "formats/text_file.h"
#include "kvtide/error.h"
#include "model/tokenizer_json.h"

namespace kvtide {
namespace {

// Names that say what a special token is for, where no file does.
constexpr std::string_view kBegins[] = {"<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>",
                                        "<|endoftext|>"};
constexpr std::string_view kEnds[] = {"</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>", "<|im_end|>"};

// A token is named by its text, or by an object that has it as its content.
std::optional<std::string> token_text(const JsonFields& json, const char* key) {
  const JsonValue* value = json.find(key);
  if (value == nullptr) return std::nullopt;
  if (value->text() != nullptr) return *value->text();
  const JsonValue* content = value->find("content");
  if (content == nullptr || content->text() == nullptr)
    json.refuse(ErrorCode::bad_format, cat("'", key, "' names no token"));
  return *content->text();
}

std::vector<std::int64_t> ids_of(const JsonFields& config, const char* key) {
  std::vector<std::int64_t> out;
  const JsonValue* value = config.find(key);
  if (value == nullptr) return out;
  if (value->integer() != nullptr) {
    out.push_back(*value->integer());
  } else if (value->list() != nullptr) {
    for (const JsonValue& item : *value->list())
      if (item.integer() != nullptr) out.push_back(*item.integer());
  }
  return out;
}

std::string list_text(const std::vector<std::int64_t>& ids) {
  std::string text;
  for (const std::int64_t id : ids) text += cat(text.empty() ? "" : ", ", id);
  return text;
}

}  // namespace

FolderVocab::FolderVocab(const std::string& folder, const JsonFields& config, std::int64_t size) {
  const std::string path = folder + "/tokenizer.json";
  json_ = JsonValue::parse(read_whole_text(path), path);
  spec_ = read_tokenizer_json(json_, path, size, notes_);
  read_side_files(folder);
  choose_ends(config);
}

void FolderVocab::fill_up(std::int64_t size) {
  spec_.tokens.resize(static_cast<std::size_t>(size));
  spec_.types.resize(static_cast<std::size_t>(size), TokenType::unused);
}

void FolderVocab::read_side_files(const std::string& folder) {
  const std::string side = folder + "/tokenizer_config.json", chat = folder + "/chat_template.jinja";
  const std::string chat_json = folder + "/chat_template.json";
  if (file_exists(chat)) {
    chat_template_ = read_whole_text(chat);
  } else if (file_exists(chat_json)) {
    const JsonValue json = JsonValue::parse(read_whole_text(chat_json), chat_json);
    take_chat_template(json.find("chat_template"));
  }
  if (!file_exists(side)) return;
  const JsonValue json = JsonValue::parse(read_whole_text(side), side);
  const JsonFields config(json, side);
  bos_text_ = token_text(config, "bos_token");
  eos_text_ = token_text(config, "eos_token");
  if (chat_template_.empty()) take_chat_template(config.find("chat_template"));
}

void FolderVocab::take_chat_template(const JsonValue* chat_template) {
  if (chat_template == nullptr) return;
  if (chat_template->text() != nullptr) {
    chat_template_ = *chat_template->text();
  } else if (chat_template->list() != nullptr) {
    // Several, by name: the one called default.
    for (const JsonValue& item : *chat_template->list()) {
      const JsonValue *name = item.find("name"), *text = item.find("template");
      if (name != nullptr && text != nullptr && name->text() != nullptr && text->text() != nullptr &&
          *name->text() == "default")
        chat_template_ = *text->text();
    }
  }
}

std::optional<TokenId> FolderVocab::find(std::string_view token) const {
  for (std::size_t i = 0; i < spec_.tokens.size(); ++i)
    if (spec_.types[i] != TokenType::unused && spec_.tokens[i] == token) return static_cast<TokenId>(i);
  return std::nullopt;
}

void FolderVocab::choose_ends(const JsonFields& config) {
  const auto choose = [&](std::optional<TokenId>& id, const std::optional<std::string>& named,
                          std::span<const std::string_view> usual, const char* key) {
    if (!id && named) id = find(*named);
    for (const std::string_view name : usual) {
      if (id) break;
      const auto found = find(name);
      if (found && spec_.types[static_cast<std::size_t>(*found)] == TokenType::control) id = found;
    }
    auto claimed = ids_of(config, key);
    if (claimed.empty()) {
      if (const auto text = config.child("text_config")) claimed = ids_of(*text, key);
    }
    if (claimed.empty()) return;
    if (!id) {
      const auto size = static_cast<std::int64_t>(spec_.tokens.size());
      if (claimed[0] >= 0 && claimed[0] < size)
        id = static_cast<TokenId>(claimed[0]);
      else
        notes_.push_back(
            cat("config.json: '", key, "' is ", claimed[0], ", which is no token; it is left out"));
    } else if (std::find(claimed.begin(), claimed.end(), *id) == claimed.end()) {
      notes_.push_back(cat("config.json says that '", key, "' is ", list_text(claimed),
                           ", the tokenizer says ", *id, " ",
                           quoted(spec_.tokens[static_cast<std::size_t>(*id)]), "; the tokenizer is right"));
    }
  };
  choose(spec_.bos, bos_text_, kBegins, "bos_token_id");
  choose(spec_.eos, eos_text_, kEnds, "eos_token_id");
  // A list that agrees may name more: the end of a turn.
  const auto ends = ids_of(config, "eos_token_id");
  if (!spec_.eos || std::find(ends.begin(), ends.end(), *spec_.eos) == ends.end()) return;
  for (const std::int64_t id : ends) {
    const bool known = id >= 0 && id < static_cast<std::int64_t>(spec_.tokens.size()) && id != *spec_.eos &&
                       spec_.types[static_cast<std::size_t>(id)] == TokenType::control;
    if (known && !spec_.eot) spec_.eot = static_cast<TokenId>(id);
  }
}

}  // namespace kvtide
