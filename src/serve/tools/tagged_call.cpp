#include "serve/tools/tagged_call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "serve/tools/python_call.h"

namespace kvtide::serve {
namespace tagged_call {

constexpr std::string_view kParameter = "<parameter=", kEnd = "</function>";
constexpr std::string_view kValueEnds[] = {"\n</parameter>", "</parameter>"};
constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::size_t kMostName = 256;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpaces);
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::optional<JsonValue> parsed(std::string_view text) {
  try {
    return JsonValue::parse(text, "a value");
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw;
    return std::nullopt;
  }
}

struct Types {
  bool text = false, null = false, other = false;

  void add(const JsonValue* type) {
    if (type == nullptr) return;
    if (const std::string* name = type->text())
      (*name == "string" ? text : *name == "null" ? null : other) = true;
    if (const JsonValue::List* names = type->list())
      for (const JsonValue& name : *names) add(&name);
  }
};

// A value that is no JSON may still be one of Python, and is a text otherwise.
std::string json_of(std::string_view value) {
  const std::string_view bare = trimmed(value);
  if (parsed(bare)) return std::string(bare);
  return read_python_value(bare).value_or(JsonValue::text_of(value));
}

}  // namespace tagged_call

void TaggedCallScanner::takes(std::string_view schema) {
  parameters_.clear();
  const std::optional<JsonValue> root = tagged_call::parsed(schema);
  const JsonValue* properties = root ? root->find("properties") : nullptr;
  if (properties == nullptr || properties->object() == nullptr) return;
  for (const auto& [name, property] : *properties->object()) {
    tagged_call::Types types;
    types.add(property.find("type"));
    for (const std::string_view key : {"anyOf", "oneOf"})
      if (const JsonValue* some = property.find(key); some != nullptr && some->list() != nullptr)
        for (const JsonValue& one : *some->list()) types.add(one.find("type"));
    parameters_.push_back({name, !types.text ? Kind::other : types.null ? Kind::text_or_null : Kind::text});
  }
}

std::string TaggedCallScanner::take_arguments() { return std::exchange(arguments_, {}); }

TaggedCallScanner::Found TaggedCallScanner::push(char c) {
  switch (place_) {
    case Place::name:
      if (c != '>') {
        name_ += c;
        return name_.size() > tagged_call::kMostName ? Found::broken : Found::nothing;
      }
      name_ = tagged_call::trimmed(name_);
      arguments_ = "{";
      place_ = Place::between;
      return Found::named;
    case Place::between:
      return between(c);
    case Place::key:
      if (c == '>')
        begin_value();
      else
        key_ += c;
      return key_.size() > tagged_call::kMostName ? end(Found::broken) : Found::nothing;
    case Place::value:
      value_byte(c);
      return Found::nothing;
  }
  return Found::broken;
}

TaggedCallScanner::Found TaggedCallScanner::end(Found how) {
  arguments_ += '}';
  return how;
}

TaggedCallScanner::Found TaggedCallScanner::between(char c) {
  if (tag_.empty() && tagged_call::kSpaces.find(c) != std::string_view::npos) return Found::nothing;
  tag_ += c;
  if (tag_ == tagged_call::kEnd) return end(Found::ended);
  if (tag_ == tagged_call::kParameter) {
    tag_.clear();
    key_.clear();
    place_ = Place::key;
    return Found::nothing;
  }
  const bool may_be_one = tagged_call::kEnd.starts_with(tag_) || tagged_call::kParameter.starts_with(tag_);
  return may_be_one ? Found::nothing : end(Found::broken);
}

void TaggedCallScanner::begin_value() {
  key_ = tagged_call::trimmed(key_);
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& parameter) { return parameter.name == key_; });
  kind_ = found == parameters_.end() ? Kind::text : found->kind;
  arguments_ += (std::exchange(any_, true) ? ", " : "") + JsonValue::text_of(key_) + ": ";
  if (kind_ == Kind::text) arguments_ += '"';
  value_.clear();
  is_first_ = true;
  place_ = Place::value;
}

// A line break behind the opening tag and one in front of the closing one are no part of the value.
void TaggedCallScanner::value_byte(char c) {
  if (std::exchange(is_first_, false) && c == '\n') return;
  tag_ += c;
  const auto is_end = [&](std::string_view tag) { return tag == tag_; };
  const auto may_be_end = [&](std::string_view tag) { return tag.starts_with(tag_); };
  const auto& ends = tagged_call::kValueEnds;
  if (std::any_of(std::begin(ends), std::end(ends), is_end)) return end_value();
  while (!tag_.empty() && std::none_of(std::begin(ends), std::end(ends), may_be_end)) {
    add(tag_[0]);
    tag_.erase(0, 1);
  }
}

void TaggedCallScanner::add(char c) {
  if (kind_ != Kind::text) {
    value_ += c;
  } else if (static_cast<unsigned char>(c) >= 0x80) {
    arguments_ += c;
  } else {
    const std::string quoted = JsonValue::text_of(std::string_view(&c, 1));
    arguments_.append(quoted, 1, quoted.size() - 2);
  }
}

void TaggedCallScanner::end_value() {
  tag_.clear();
  place_ = Place::between;
  if (kind_ == Kind::text) {
    arguments_ += '"';
    return;
  }
  const std::string json = tagged_call::json_of(value_);
  arguments_ += kind_ == Kind::other || json == "null" ? json : JsonValue::text_of(value_);
}

}  // namespace kvtide::serve
