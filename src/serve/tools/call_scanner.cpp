#include "serve/tools/call_scanner.h"

#include <optional>
#include <utility>

#include "base/json/json_value.h"
#include "kvtide/error.h"

namespace kvtide::serve {
namespace call_scanner {

constexpr int kMostDepth = JsonValue::kMostDepth - 2;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// nullopt: no text of JSON.
std::optional<std::string> text_in(const std::string& json) {
  try {
    const JsonValue value = JsonValue::parse(json, "a call");
    if (value.text() != nullptr) return *value.text();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw;
  }
  return std::nullopt;
}

}  // namespace call_scanner

CallScanner::Found CallScanner::push(char c) {
  using call_scanner::is_space;
  if (!opened_) {
    opened_ = true;
    return c == '{' ? Found::nothing : Found::broken;
  }
  switch (place_) {
    case Place::before_key:
      if (is_space(c)) return Found::nothing;
      if (c == '}') return has_name_ ? Found::ended : Found::broken;
      if (c != '"') return Found::broken;
      key_.clear();
      place_ = Place::key;
      return Found::nothing;
    case Place::key:
      if (c == '"')
        place_ = Place::colon;
      else if (c == '\\' || key_.size() > 64)
        return Found::broken;
      else
        key_ += c;
      return Found::nothing;
    case Place::colon:
      if (c == ':') place_ = Place::before_value;
      return c == ':' || is_space(c) ? Found::nothing : Found::broken;
    case Place::before_value:
      if (is_space(c)) return Found::nothing;
      value_.clear();
      given_ = 0;
      depth_ = 0;
      place_ = Place::value;
      return value_byte(c);
    case Place::value:
      return value_byte(c);
    case Place::after_value:
      if (is_space(c)) return Found::nothing;
      if (c == '}') return has_name_ ? Found::ended : Found::broken;
      if (c != ',') return Found::broken;
      place_ = Place::before_key;
      return Found::nothing;
  }
  return Found::broken;
}

CallScanner::Found CallScanner::value_byte(char c) {
  if (in_text_) {
    value_ += c;
    if (escaped_)
      escaped_ = false;
    else if (c == '\\')
      escaped_ = true;
    else if (c == '"')
      in_text_ = false;
    return !in_text_ && depth_ == 0 ? value_ended() : Found::nothing;
  }
  if (depth_ == 0 && !value_.empty() && (c == ',' || c == '}' || call_scanner::is_space(c))) {
    const Found found = value_ended();  // a number or a word
    if (found == Found::broken || call_scanner::is_space(c)) return found;
    const Found behind = push(c);
    return behind == Found::nothing ? found : behind;
  }
  value_ += c;
  if (c == '"') in_text_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') --depth_;
  if (depth_ < 0 || depth_ > call_scanner::kMostDepth) return Found::broken;
  return depth_ == 0 && (c == '}' || c == ']') ? value_ended() : Found::nothing;
}

CallScanner::Found CallScanner::value_ended() {
  place_ = Place::after_value;
  if (key_ == "name" && !has_name_) {
    const auto name = call_scanner::text_in(value_);
    if (!name) return Found::broken;
    name_ = *name;
    has_name_ = true;
    return Found::named;
  }
  if (is_argument_key() && !has_arguments_) {
    has_arguments_ = true;
    if (value_.starts_with('{'))
      arguments_ += value_.substr(std::exchange(given_, value_.size()));
    else if (const auto text = call_scanner::text_in(value_); text && text->starts_with('{'))
      arguments_ += *text;
    else
      arguments_ += "{}";
  }
  return Found::nothing;
}

std::string CallScanner::take_arguments() {
  if (place_ == Place::value && is_argument_key() && !has_arguments_ && value_.starts_with('{'))
    arguments_ += value_.substr(std::exchange(given_, value_.size()));
  return std::exchange(arguments_, {});
}

}  // namespace kvtide::serve
