// json_value.h: a JSON text as a tree of plain values: config.json, tokenizer.json, an index of shards.
//
// Strict: UTF-8, one value, no name twice in an object, at most kMostDepth levels. Ownership: a value owns
// what is below it. Thread rules: a plain value. Members keep the order of the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  explicit JsonValue(bool value) : kind_(Kind::boolean), flag_(value) {}
  explicit JsonValue(std::int64_t value) : kind_(Kind::integer), whole_(value) {}
  explicit JsonValue(double value) : kind_(Kind::real), real_(value) {}
  explicit JsonValue(std::string value) : kind_(Kind::text), text_(std::move(value)) {}
  explicit JsonValue(List value) : kind_(Kind::list), list_(std::make_unique<List>(std::move(value))) {}
  explicit JsonValue(Object value)
      : kind_(Kind::object), object_(std::make_unique<Object>(std::move(value))) {}

  bool is_null() const { return kind_ == Kind::null; }
  // nullptr: of another kind. Whole numbers beyond 64 bits are kept as doubles.
  const bool* boolean() const { return kind_ == Kind::boolean ? &flag_ : nullptr; }
  const std::int64_t* integer() const { return kind_ == Kind::integer ? &whole_ : nullptr; }
  std::optional<double> number() const;
  const std::string* text() const { return kind_ == Kind::text ? &text_ : nullptr; }
  const List* list() const { return list_.get(); }
  const Object* object() const { return object_.get(); }
  // "a list", "a number", ...: for messages.
  std::string_view kind() const;

  // The member of an object; nullptr: absent, or no object. A search from front to back: for objects of a
  // few dozen members.
  const JsonValue* find(std::string_view name) const;

 private:
  enum class Kind { null, boolean, integer, real, text, list, object };
  Kind kind_ = Kind::null;
  bool flag_ = false;
  union {
    std::int64_t whole_ = 0;
    double real_;
  };
  std::string text_;
  std::unique_ptr<List> list_;
  std::unique_ptr<Object> object_;
};

}  // namespace kvtide
