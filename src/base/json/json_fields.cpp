#include "base/json/json_fields.h"

#include "base/text.h"

namespace kvtide {

JsonFields::JsonFields(const JsonValue& json, std::string file, std::string inside)
    : json_(&json), file_(std::move(file)), inside_(std::move(inside)) {
  if (json.object() == nullptr)
    refuse(ErrorCode::bad_format, cat(inside_.empty() ? "the file" : cat("'", inside_, "'"), " is ",
                                      json.kind(), "; it must be an object"));
}

void JsonFields::refuse(ErrorCode code, const std::string& why) const {
  throw Error(code, cat(file_, ": ", why));
}

void JsonFields::wrong(std::string_view key, const JsonValue& value, std::string_view wanted) const {
  const auto number = value.number();
  refuse(ErrorCode::bad_format, cat("'", inside_, key, "' is ",
                                    number         ? cat(*number)
                                    : value.text() ? quoted(*value.text())
                                                   : std::string(value.kind()),
                                    "; it must be ", wanted));
}

const JsonValue* JsonFields::find(std::string_view key) const {
  const JsonValue* value = json_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool JsonFields::is_null(std::string_view key) const {
  return contains(key) ? json_->find(key)->is_null() : require(key).is_null();
}

const JsonValue& JsonFields::require(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) refuse(ErrorCode::bad_format, cat("the key '", inside_, key, "' is missing"));
  return *value;
}

std::int64_t JsonFields::count(std::string_view key, std::int64_t low, std::int64_t high,
                               std::optional<std::int64_t> fallback) const {
  if (!has(key) && fallback) return *fallback;
  const JsonValue& value = require(key);
  const std::int64_t* whole = value.integer();
  if (whole == nullptr || *whole < low || *whole > high)
    wrong(key, value, cat("a whole number between ", low, " and ", high));
  return *whole;
}

double JsonFields::real(std::string_view key, double low, double high, std::optional<double> fallback) const {
  if (!has(key) && fallback) return *fallback;
  const JsonValue& value = require(key);
  const auto number = value.number();
  if (!number || !(*number >= low && *number <= high))
    wrong(key, value, cat("a number between ", low, " and ", high));
  return *number;
}

void JsonFields::take(const Wanted& wanted, const JsonValue& value, std::int64_t& out) const {
  const std::int64_t* whole = value.integer();
  if (whole == nullptr || *whole < wanted.low || *whole > wanted.high)
    wrong(wanted.key, value, cat("whole numbers between ", wanted.low, " and ", wanted.high));
  out = *whole;
}

void JsonFields::take(const Wanted& wanted, const JsonValue& value, double& out) const {
  const auto number = value.number();
  if (!number) wrong(wanted.key, value, "numbers");
  out = *number;
}

bool JsonFields::flag(std::string_view key, std::optional<bool> fallback) const {
  if (!has(key) && fallback) return *fallback;
  const JsonValue& value = require(key);
  if (value.boolean() == nullptr) wrong(key, value, "true or false");
  return *value.boolean();
}

std::optional<std::string> JsonFields::text(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->text() == nullptr) wrong(key, *value, "a string");
  return *value->text();
}

std::vector<std::string> JsonFields::texts(std::string_view key) const {
  std::vector<std::string> out;
  const JsonValue* value = find(key);
  if (value == nullptr) return out;
  if (value->list() == nullptr) wrong(key, *value, "a list of strings");
  for (const JsonValue& item : *value->list()) {
    if (item.text() == nullptr) wrong(key, item, "a list of strings");
    out.push_back(*item.text());
  }
  return out;
}

std::string JsonFields::required_text(std::string_view key) const {
  require(key);
  return *text(key);
}

std::string JsonFields::one_of(std::string_view key, std::initializer_list<std::string_view> known) const {
  const std::string value = required_text(key);
  std::string list;
  for (const std::string_view name : known) {
    if (value == name) return value;
    list += cat(list.empty() ? "" : ", ", name);
  }
  refuse(ErrorCode::unsupported, cat("'", inside_, key, "' is ", quoted(value), "; known: ", list));
}

const JsonValue::List& JsonFields::list(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr || value->list() == nullptr)
    refuse(ErrorCode::bad_format, cat("'", inside_, key, "' must be a list"));
  return *value->list();
}

std::vector<JsonFields> JsonFields::objects(std::string_view key) const {
  std::vector<JsonFields> items;
  for (const JsonValue& item : list(key)) {
    if (item.object() == nullptr) wrong(key, item, "a list of objects");
    items.emplace_back(item, file_, cat(inside_, key, "."));
  }
  return items;
}

JsonFields JsonFields::required_child(std::string_view key) const {
  return JsonFields(require(key), file_, cat(inside_, key, "."));
}

std::optional<JsonFields> JsonFields::child(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  return JsonFields(*value, file_, cat(inside_, key, "."));
}

}  // namespace kvtide
