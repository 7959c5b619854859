#include "serve/http/fields.h"

#include <cmath>
#include <utility>

#include "base/refuse.h"
#include "base/text.h"

namespace kvtide::serve {

Fields::Fields(const JsonValue& json, std::string place) : json_(&json), place_(std::move(place)) {
  if (json.object() == nullptr)
    kvtide::refuse(cat(place_.empty() ? "the body" : place_, ": must be an object, not ", json.kind()));
}

const JsonValue* Fields::find(std::string_view key) const {
  const JsonValue* found = json_->find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::string Fields::place(std::string_view key) const {
  return place_.empty() ? std::string(key) : cat(place_, ".", key);
}

void Fields::refuse(std::string_view key, std::string_view why) const {
  kvtide::refuse(cat(place(key), ": ", why));
}

void Fields::wrong(std::string_view key, std::string_view wanted) const {
  refuse(key, cat("must be ", wanted, ", not ", find(key)->kind()));
}

std::optional<std::int64_t> Fields::whole(std::string_view key, std::int64_t low, std::int64_t high) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> number = value->number();
  if (!number) wrong(key, "a whole number");
  constexpr double kTooLarge = 9223372036854775808.0;  // 2^63, which doubles do not tell from the largest
  const bool fits = value->integer() != nullptr || *number < kTooLarge;
  if (!(fits && *number >= static_cast<double>(low) && *number <= static_cast<double>(high)))
    refuse(key, cat("must be from ", low, " to ", high, ", not ", value->plain_text()));
  // 16.0 is a whole number, too.
  if (value->integer() == nullptr && *number != std::floor(*number)) wrong(key, "a whole number");
  return value->integer() != nullptr ? *value->integer() : static_cast<std::int64_t>(*number);
}

std::optional<double> Fields::real(std::string_view key, double low, double high) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> number = value->number();
  if (!number) wrong(key, "a number");
  if (!(*number >= low && *number <= high))
    refuse(key, cat("must be from ", low, " to ", high, ", not ", value->plain_text()));
  return number;
}

std::optional<bool> Fields::flag(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->boolean() == nullptr) wrong(key, "true or false");
  return *value->boolean();
}

std::optional<std::string> Fields::text(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->text() == nullptr) wrong(key, "a string");
  return *value->text();
}

const JsonValue::List* Fields::list(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (value->list() == nullptr) wrong(key, "a list");
  return value->list();
}

std::optional<Fields> Fields::child(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->object() == nullptr) wrong(key, "an object");
  return Fields(*value, place(key));
}

std::vector<std::string> Fields::texts(std::string_view key, std::size_t most) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return {};
  if (value->text() != nullptr) return {*value->text()};
  if (value->list() == nullptr) wrong(key, "a string or a list of strings");
  if (value->list()->size() > most)
    refuse(key, cat("has ", value->list()->size(), " entries; ", most, " are the most"));
  std::vector<std::string> out;
  for (const JsonValue& item : *value->list()) {
    if (item.text() == nullptr)
      refuse(cat(key, "[", out.size(), "]"), cat("must be a string, not ", item.kind()));
    out.push_back(*item.text());
  }
  return out;
}

std::string Fields::required_text(std::string_view key) const {
  if (!has(key)) refuse(key, "is missing; it must be a string");
  return *text(key);
}

std::int64_t Fields::required_whole(std::string_view key, std::int64_t low, std::int64_t high) const {
  if (!has(key)) refuse(key, "is missing; it must be a whole number");
  return *whole(key, low, high);
}

const JsonValue::List& Fields::required_list(std::string_view key) const {
  if (!has(key)) refuse(key, "is missing; it must be a list");
  return *list(key);
}

JsonValue parse_body(std::string_view body) {
  try {
    return JsonValue::parse(body, "the body");
  } catch (const Error& error) {
    kvtide::refuse(error.message());
  }
}

JsonValue parse_optional_body(std::string_view body) {
  return body.empty() ? JsonValue(JsonValue::Object()) : parse_body(body);
}

std::string_view field_of(std::string_view message) {
  const std::string_view field = message.substr(0, message.find(": "));
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]";
  return field.size() == message.size() || field.find_first_not_of(kLetters) != field.npos
             ? std::string_view()
             : field;
}

}  // namespace kvtide::serve
