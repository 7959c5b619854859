// json_value.h: JSON as a tree of plain values: config.json, tokenizer.json, the header of a snapshot, a
// report.
//
// Reading is strict: UTF-8, one value, no name twice in an object, at most kMostDepth levels.
// Ownership: a value owns what is below it, and giving it up needs no memory.
// Thread rules: a plain value. Members keep the order of the file. json_fields.h reads the members of an
// object with their ranges, json_text.h writes a tree, and json.h builds one. Only json_value.cpp knows the
// library that parses.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
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
  explicit JsonValue(std::same_as<bool> auto value) : value_(value) {}
  explicit JsonValue(std::signed_integral auto value) : value_(std::int64_t{value}) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) explicit JsonValue(T value) : value_(std::uint64_t{value}) {
    if (value <= kLargest) value_ = static_cast<std::int64_t>(value);
  }
  explicit JsonValue(double value) : value_(value) {}
  explicit JsonValue(std::string value) : value_(std::make_unique<std::string>(std::move(value))) {}
  explicit JsonValue(List value) : value_(std::make_unique<List>(std::move(value))) {}
  explicit JsonValue(Object value) : value_(std::make_unique<Object>(std::move(value))) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // nullptr: of another kind. integer() holds 64 bits with a sign; parse() keeps larger whole numbers, and
  // -0, as doubles.
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&value_); }
  std::optional<double> number() const;
  const std::string* text() const { return held<std::string>(); }
  const List* list() const { return held<List>(); }
  const Object* object() const { return held<Object>(); }
  List* list() { return held<List>(); }
  Object* object() { return held<Object>(); }
  // "a list", "a number", ...: for messages.
  std::string_view kind() const;

  // The member of an object; nullptr: absent, or no object. A search from front to back: for objects of a
  // few dozen members.
  const JsonValue* find(std::string_view name) const;

  // JSON text of a value that is neither a list nor an object. A string in quotes, with U+FFFD for bytes that
  // are not UTF-8; the shortest number that reads back as the same; null for a number that is not finite.
  std::string plain_text() const;
  static std::string text_of(std::string_view text);
  static std::string text_of(double number);

 private:
  static constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

  template <class T>
  T* held() const {
    const auto* owner = std::get_if<std::unique_ptr<T>>(&value_);
    return owner == nullptr ? nullptr : owner->get();
  }

  // Unsigned: only above kLargest.
  std::variant<std::monostate, bool, std::int64_t, double, std::unique_ptr<std::string>,
               std::unique_ptr<List>, std::unique_ptr<Object>, std::uint64_t>
      value_;
};

}  // namespace kvtide
