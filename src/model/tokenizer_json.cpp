#include "model/tokenizer_json.h"

#include <algorithm>

#include "base/json/json_fields.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "model/tokenizer_steps.h"

namespace kvtide {
namespace {

class Reader {
 public:
  Reader(const JsonValue& json, const std::string& file, std::int64_t size, std::vector<std::string>& notes)
      : json_(json, file), size_(size), notes_(notes) {}

  VocabSpec read() {
    spec_.kind = VocabSpec::Kind::pipeline;
    const auto model = json_.child("model");
    if (!model) json_.refuse(ErrorCode::bad_format, "the key 'model' is missing");
    const std::string type = model->text("type").value_or("BPE");
    if (type != "BPE")
      json_.refuse(ErrorCode::unsupported,
                   cat("the model ", quoted(type), " is not supported; kvtide knows BPE"));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!model->text(key).value_or("").empty())
        json_.refuse(ErrorCode::unsupported, cat("'model.", key, "' is not supported"));
    if (model->real("dropout", 0.0, 1.0, 0.0) != 0.0)
      json_.refuse(ErrorCode::unsupported, "'model.dropout' above 0 is not supported: ids would be random");
    read_steps(json_, spec_.pipeline);
    read_vocabulary(*model);
    spec_.pipeline.byte_fallback = model->flag("byte_fallback", false);
    spec_.pipeline.fuse_unknown = model->flag("fuse_unk", false);
    spec_.pipeline.whole_words = model->flag("ignore_merges", false);
    read_added();
    find_roles(*model);
    read_merges(*model);
    read_template();
    spec_.add_space_prefix = !spec_.pipeline.byte_level && decoder_strips(json_);
    return std::move(spec_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { json_.refuse(ErrorCode::bad_format, why); }

  void read_vocabulary(const JsonFields& model) {
    const JsonValue* vocab = model.find("vocab");
    if (vocab == nullptr || vocab->object() == nullptr || vocab->object()->empty())
      refuse("'model.vocab' must be an object from tokens to ids");
    const std::size_t count = vocab->object()->size();
    if (static_cast<std::int64_t>(count) > size_)
      refuse(cat("'model.vocab' has ", count, " tokens, but the model has ", size_));
    std::int64_t end = 0;
    for (const auto& [token, id] : *vocab->object())
      if (id.integer() != nullptr && *id.integer() < size_) end = std::max(end, *id.integer() + 1);
    check_holes(end, count);
    grow(end);
    for (const auto& [token, id] : *vocab->object()) {
      if (id.integer() == nullptr || *id.integer() < 0 || *id.integer() >= size_)
        refuse(cat("token ", quoted(token), " has the id ",
                   id.integer() ? cat(*id.integer()) : std::string(id.kind()), "; ids go from 0 to ",
                   size_ - 1, ", the rows of the model's embedding"));
      const auto at = static_cast<std::size_t>(*id.integer());
      if (spec_.types[at] != TokenType::unused)
        refuse(cat("tokens ", quoted(spec_.tokens[at]), " and ", quoted(token), " have the same id ", at));
      spec_.tokens[at] = token;
      spec_.types[at] = TokenType::normal;
    }
  }

  // A vocabulary has about as many ids as tokens; memory is not to follow one huge id.
  void check_holes(std::int64_t end, std::size_t count) const {
    if (end > 2 * static_cast<std::int64_t>(count) + 65536)
      refuse(cat("ids go up to ", end - 1, ", but there are only ", count, " tokens"));
  }
  void grow(std::int64_t end) {
    spec_.tokens.resize(static_cast<std::size_t>(end));
    spec_.types.resize(static_cast<std::size_t>(end), TokenType::unused);
  }

  void read_added() {
    const JsonValue* added = json_.find("added_tokens");
    if (added == nullptr) return;
    if (added->list() == nullptr) refuse("'added_tokens' must be a list");
    std::vector<std::pair<std::string_view, TokenId>> ids;
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i)
      if (spec_.types[i] == TokenType::normal) ids.emplace_back(spec_.tokens[i], static_cast<TokenId>(i));
    std::sort(ids.begin(), ids.end());
    std::size_t beyond = 0;
    for (const JsonValue& item : *added->list()) {
      const JsonFields token(item, json_.file(), "added_tokens.");
      const JsonValue* content = token.find("content");
      if (content == nullptr || content->text() == nullptr || content->text()->empty())
        refuse("an added token lacks its 'content'");
      const std::string_view text = *content->text();
      const std::int64_t id = token.count("id", 0, std::int64_t{1} << 24);
      if (id >= size_) {
        ++beyond;
        continue;
      }
      if (id >= static_cast<std::int64_t>(spec_.tokens.size())) {
        check_holes(id + 1, spec_.tokens.size() + added->list()->size());
        grow(id + 1);
      }
      const auto at = static_cast<std::size_t>(id);
      const auto same =
          std::lower_bound(ids.begin(), ids.end(), std::pair<std::string_view, TokenId>(text, -1));
      const bool known = same != ids.end() && same->first == text;
      if ((known && same->second != id) || (spec_.types[at] != TokenType::unused && spec_.tokens[at] != text))
        refuse(cat("the added token ", quoted(text), " has the id ", id, ", but 'model.vocab' gives ",
                   known ? cat("it the id ", same->second) : cat("that id to ", quoted(spec_.tokens[at]))));
      AddedToken entry;
      entry.id = static_cast<TokenId>(id);
      entry.takes_space_before = token.flag("lstrip", false);
      entry.takes_space_behind = token.flag("rstrip", false);
      entry.whole_word = token.flag("single_word", false);
      entry.normalized = token.flag("normalized", false);
      spec_.pipeline.added.push_back(entry);
      spec_.tokens[at] = text;
      spec_.types[at] = token.flag("special", false) ? TokenType::control : TokenType::user_defined;
    }
    if (beyond > 0)
      notes_.push_back(cat("tokenizer.json has ", beyond, " added tokens beyond the ", size_,
                           " rows of the model's embedding; they are left out"));
  }

  void find_roles(const JsonFields& model) {
    const auto unknown = model.text("unk_token");
    bool found = false;
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i) {
      if (!unknown || spec_.types[i] == TokenType::unused || spec_.tokens[i] != *unknown || found) continue;
      spec_.unk = static_cast<TokenId>(i);
      found = true;
    }
    if (unknown && !found)
      refuse(cat("'model.unk_token' is ", quoted(*unknown), ", which 'model.vocab' does not have"));
    if (!spec_.pipeline.byte_fallback) return;
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i)
      if (spec_.types[i] == TokenType::normal && is_byte(spec_.tokens[i])) spec_.types[i] = TokenType::byte;
  }

  static bool is_byte(std::string_view token) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    return token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
           kHex.find(token[3]) != kHex.npos && kHex.find(token[4]) != kHex.npos;
  }

  // "left right", or ["left", "right"].
  void read_merges(const JsonFields& model) {
    const JsonValue* merges = model.find("merges");
    if (merges == nullptr || merges->list() == nullptr) refuse("'model.merges' must be a list");
    auto& out = spec_.pipeline.merges;
    out.reserve(merges->list()->size());
    for (const JsonValue& merge : *merges->list()) {
      if (const std::string* text = merge.text()) {
        const std::size_t space = text->find(' ');
        if (space == 0 || space == text->npos || space + 1 == text->size() ||
            text->find(' ', space + 1) != text->npos)
          refuse(cat("merge ", out.size(), " ", quoted(*text),
                     " has to be two tokens with one space between them"));
        out.emplace_back(std::string_view(*text).substr(0, space), std::string_view(*text).substr(space + 1));
        continue;
      }
      const auto* pair = merge.list();
      if (pair == nullptr || pair->size() != 2 || (*pair)[0].text() == nullptr ||
          (*pair)[1].text() == nullptr)
        refuse(cat("merge ", out.size(), " has to be two tokens"));
      out.emplace_back(*(*pair)[0].text(), *(*pair)[1].text());
    }
  }

  // What is put around a single text: nothing, one token in front, one behind.
  void read_template() {
    const auto post = json_.child("post_processor");
    if (post) read_post_processor(*post, 0);
  }

  void read_post_processor(const JsonFields& post, int depth) {
    const std::string type = post.text("type").value_or("");
    if (type == "ByteLevel") return;  // changes offsets only
    if (type == "Sequence" && depth < 3) {
      const JsonValue* list = post.find("processors");
      if (list == nullptr || list->list() == nullptr)
        refuse("a Sequence of post_processors must hold a list");
      for (const JsonValue& item : *list->list())
        read_post_processor(JsonFields(item, json_.file(), "post_processor."), depth + 1);
      return;
    }
    if (type != "TemplateProcessing")
      post.refuse(ErrorCode::unsupported,
                  cat("the post_processor ", quoted(type),
                      " is not supported; kvtide knows ByteLevel, TemplateProcessing and Sequence"));
    const JsonValue* single = post.find("single");
    if (single == nullptr || single->list() == nullptr) refuse("'post_processor.single' must be a list");
    bool behind = false;
    for (const JsonValue& item : *single->list()) {
      if (item.find("Sequence") != nullptr) {
        behind = true;
        continue;
      }
      const TokenId id = template_token(post, item);
      auto& place = behind ? spec_.eos : spec_.bos;
      auto& adds = behind ? spec_.add_eos : spec_.add_bos;
      if (adds)
        post.refuse(ErrorCode::unsupported,
                    "more than one token in front of or behind a text is not supported");
      place = id;
      adds = true;
    }
  }

  TokenId template_token(const JsonFields& post, const JsonValue& item) const {
    const JsonValue* special = item.find("SpecialToken");
    const JsonValue* name = special != nullptr ? special->find("id") : nullptr;
    if (name == nullptr || name->text() == nullptr)
      refuse("'post_processor.single' holds neither a Sequence nor a token");
    const auto tokens = post.child("special_tokens");
    const auto entry = tokens ? tokens->child(*name->text()) : std::nullopt;
    const JsonValue* ids = entry ? entry->find("ids") : nullptr;
    if (ids == nullptr || ids->list() == nullptr || ids->list()->size() != 1 ||
        (*ids->list())[0].integer() == nullptr)
      refuse(cat("'post_processor.special_tokens' does not give ", quoted(*name->text()), " one id"));
    const std::int64_t id = *(*ids->list())[0].integer();
    if (id < 0 || id >= static_cast<std::int64_t>(spec_.tokens.size()))
      refuse(cat("the token ", quoted(*name->text()), " has the id ", id, "; ids go from 0 to ",
                 spec_.tokens.size() - 1));
    return static_cast<TokenId>(id);
  }

  JsonFields json_;
  std::int64_t size_;
  std::vector<std::string>& notes_;
  VocabSpec spec_;
};

}  // namespace

VocabSpec read_tokenizer_json(const JsonValue& json, const std::string& file, std::int64_t size,
                              std::vector<std::string>& notes) {
  return Reader(json, file, size, notes).read();
}

}  // namespace kvtide
