// json_value.h: a JSON text as a tree of plain values: config.json, tokenizer.json, the header of a snapshot.
//
// Strict: UTF-8, one value, no name twice in an object, at most kMostDepth levels. Ownership: a value owns
// what is below it, and giving it up needs no memory. Thread rules: a plain value. Members keep the order of
// the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kvtide {

class JsonValue {
 public:
  static constexpr int kMostDepth = 64;
  using List = std::vector<JsonValue>;
  using Member = std::pair<std::string, JsonValue>;
  using Object = std::vector<Member>;

  // Throws Error(bad_format): "<file>: ..." with the byte at which the text stops being JSON.
  static JsonValue parse(std::string_view text, std::string_view file);

  JsonValue() = default;
  explicit JsonValue(bool value) : value_(value) {}
  explicit JsonValue(std::int64_t value) : value_(value) {}
  explicit JsonValue(double value) : value_(value) {}
  explicit JsonValue(std::string value) : value_(std::make_unique<std::string>(std::move(value))) {}
  explicit JsonValue(List value) : value_(std::make_unique<List>(std::move(value))) {}
  explicit JsonValue(Object value) : value_(std::make_unique<Object>(std::move(value))) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // nullptr: of another kind. Whole numbers beyond 64 bits, and -0, are kept as doubles.
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&value_); }
  std::optional<double> number() const;
  const std::string* text() const { return held<std::string>(); }
  const List* list() const { return held<List>(); }
  const Object* object() const { return held<Object>(); }
  // "a list", "a number", ...: for messages.
  std::string_view kind() const;

  // The member of an object; nullptr: absent, or no object. A search from front to back: for objects of a
  // few dozen members.
  const JsonValue* find(std::string_view name) const;

 private:
  template <class T>
  const T* held() const {
    const auto* owner = std::get_if<std::unique_ptr<T>>(&value_);
    return owner == nullptr ? nullptr : owner->get();
  }

  std::variant<std::monostate, bool, std::int64_t, double, std::unique_ptr<std::string>,
               std::unique_ptr<List>, std::unique_ptr<Object>>
      value_;
};

}  // namespace kvtide
