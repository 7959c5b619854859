#include "serve/routes/request_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/text.h"
#include "text/utf8.h"

namespace kvtide::serve {
namespace request_fields {

constexpr std::size_t kMostStops = 16;
constexpr double kMostPenalty = 1000.0;

void set(float& target, const std::optional<double>& value) {
  if (value) target = static_cast<float>(*value);
}

std::vector<std::pair<TokenId, float>> read_bias(const Fields& fields) {
  std::vector<std::pair<TokenId, float>> out;
  const std::optional<Fields> bias = fields.child("logit_bias");
  if (!bias) return out;
  const JsonValue& object = *fields.find("logit_bias");
  for (const auto& [name, value] : *object.object()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size() || id < 0)
      fields.refuse("logit_bias", cat("its names must be token ids, not ", quoted(name)));
    const std::optional<double> number = value.number();
    if (!number || !(*number >= -100 && *number <= 100))
      fields.refuse("logit_bias", cat("the bias of token ", id, " must be from -100 to 100"));
    out.emplace_back(id, static_cast<float>(*number));
  }
  return out;
}

TokenId token_of(const Fields& fields, std::string_view key, const JsonValue& value, std::size_t vocabulary) {
  const std::int64_t* id = value.integer();
  if (id == nullptr || *id < 0 || *id >= static_cast<std::int64_t>(vocabulary))
    fields.refuse(key, cat("a token id must be from 0 to ", vocabulary - 1, ", not ",
                           value.list() != nullptr || value.object() != nullptr ? std::string(value.kind())
                                                                                : value.plain_text()));
  return static_cast<TokenId>(*id);
}

}  // namespace request_fields

void read_sampling(const Fields& fields, AnswerSpec& spec) {
  using request_fields::set;
  SamplerOptions& o = spec.sampler;
  set(o.temperature, fields.real("temperature", 0.0, 100.0));
  set(o.top_p, fields.real("top_p", 0.0, 1.0));
  o.top_p = std::max(o.top_p, 1e-9f);  // 0: only the most likely token
  if (const auto k = fields.whole("top_k", -1, std::numeric_limits<int>::max()))
    o.top_k = static_cast<int>(std::max<std::int64_t>(*k, 0));
  set(o.min_p, fields.real("min_p", 0.0, 1.0));
  for (const char* name : {"repeat_penalty", "repetition_penalty"})
    set(o.repeat_penalty, fields.real(name, 0.001, request_fields::kMostPenalty));
  if (const auto last = fields.whole("repeat_last_n", -1, std::numeric_limits<int>::max()))
    o.repeat_last = *last < 0 ? std::numeric_limits<int>::max() : static_cast<int>(*last);
  spec.frequency_penalty = fields.real("frequency_penalty", -2.0, 2.0).value_or(0.0);
  spec.presence_penalty = fields.real("presence_penalty", -2.0, 2.0).value_or(0.0);
  if (const auto seed = fields.whole("seed", std::numeric_limits<std::int64_t>::min(),
                                     std::numeric_limits<std::int64_t>::max()))
    o.seed = static_cast<std::uint64_t>(*seed);
  spec.bias = request_fields::read_bias(fields);
}

std::string slot_key(std::int64_t slot) { return cat("slot ", slot); }

std::string read_key(const Fields& fields, const std::string* session, std::string otherwise) {
  constexpr std::int64_t kMostSlots = 1 << 20;
  if (const auto slot = fields.whole("id_slot", -1, kMostSlots); slot && *slot >= 0) return slot_key(*slot);
  return session != nullptr ? *session : otherwise;
}

void read_stop(const Fields& fields, std::string_view key, AnswerSpec& spec) {
  for (std::string& stop : fields.texts(key, request_fields::kMostStops)) {
    if (stop.empty()) fields.refuse(key, "a text that ends the answer must not be empty");
    spec.stop.push_back(std::move(stop));
  }
}

void refuse_unsupported(const Fields& fields, std::string_view key, std::string_view why) {
  throw Error(ErrorCode::unsupported, cat(fields.place(key), ": ", why));
}

std::vector<TokenId> read_prompt(const Fields& fields, std::string_view key, const Tokenizer& tokenizer) {
  const JsonValue* prompt = fields.find(key);
  if (prompt == nullptr) fields.refuse(key, "is missing; it must be a string or a list of token ids");
  if (const auto* list = prompt->list();
      list != nullptr && !list->empty() && list->front().integer() == nullptr) {
    if (list->size() > 1)
      refuse_unsupported(fields, key,
                         "several prompts in one request are not supported; send one request each");
    prompt = &list->front();
  }
  if (prompt->text() != nullptr) {
    if (find_invalid_utf8(*prompt->text())) fields.refuse(key, "is not valid UTF-8");
    return tokenizer.encode(*prompt->text());
  }
  if (prompt->list() == nullptr)
    fields.refuse(key, cat("must be a string or a list of token ids, not ", prompt->kind()));
  std::vector<TokenId> out;
  for (const JsonValue& id : *prompt->list())
    out.push_back(request_fields::token_of(fields, key, id, tokenizer.size()));
  return out;
}

}  // namespace kvtide::serve
