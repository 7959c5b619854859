#include "text/jinja/from_json.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::jinja {
namespace from_json_values {
namespace {

Value text_value(const std::string& text, bool is_given) {
  return Value(is_given ? MarkedText::all_given(text) : MarkedText(text));
}

Value converted(const JsonValue& json, bool is_given, int depth) {
  if (depth > Value::kMostDepth)
    throw Error(ErrorCode::invalid_argument, "chat template: the variables hold too many lists in lists");
  if (const bool* flag = json.boolean()) return Value(*flag);
  if (const std::int64_t* whole = json.integer()) return Value(*whole);
  if (const auto number = json.number()) return Value(*number);
  if (const std::string* text = json.text()) return text_value(*text, is_given);
  if (const JsonValue::List* list = json.list()) {
    std::vector<Value> items;
    for (const JsonValue& item : *list) items.push_back(converted(item, is_given, depth + 1));
    return Value::list(std::move(items));
  }
  const JsonValue::Object* object = json.object();
  if (object == nullptr) return nullptr;
  auto made = std::make_shared<Mapping>();
  for (const auto& [key, value] : *object) {
    const bool is_role = key == "role" && value.text() != nullptr && is_plain_word(*value.text());
    made->set(text_value(key, is_given && !is_plain_word(key)),
              converted(value, is_given && !is_role, depth + 1));
  }
  return Value::mapping(std::move(made));
}

}  // namespace
}  // namespace from_json_values

bool is_plain_word(std::string_view role) {
  return std::all_of(role.begin(), role.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

Value from_json(const JsonValue& json, bool is_given) {
  return from_json_values::converted(json, is_given, 0);
}

std::shared_ptr<Mapping> variables_from_json(const JsonValue& object) {
  if (object.object() == nullptr)
    throw Error(ErrorCode::invalid_argument,
                cat("chat template: the variables must be an object, not ", object.kind()));
  auto made = std::make_shared<Mapping>();
  for (const auto& [name, value] : *object.object()) {
    const bool is_given = name == "messages" || name == "tools" || name == "documents";
    made->set(Value::text(name), from_json(value, is_given));
  }
  return made;
}

}  // namespace kvtide::jinja
