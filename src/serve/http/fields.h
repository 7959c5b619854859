// fields.h: the members of a request's JSON object, typed and range-checked. Members that nobody asks for are ignored,
// and null counts as absent, as the clients expect.
//
// Every refusal is an Error(invalid_argument) whose message begins with the place of the field: "messages[2].role: ...".
// Ownership: refers to the JsonValue, which must outlive it. Thread rules: const from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_value.h"

namespace kvtide::serve {

class Fields {
 public:
  // `place`: of the object in the request, "" for the whole. Throws unless `json` is an object.
  explicit Fields(const JsonValue& json, std::string place = "");

  const JsonValue* find(std::string_view key) const;  // nullptr: absent or null
  bool has(std::string_view key) const { return find(key) != nullptr; }
  std::string place(std::string_view key) const;  // "messages[2].role"

  // nullopt and nullptr: absent. Each throws for another type and for a value outside [low, high].
  std::optional<std::int64_t> whole(std::string_view key, std::int64_t low, std::int64_t high) const;
  std::optional<double> real(std::string_view key, double low, double high) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  const JsonValue::List* list(std::string_view key) const;
  std::optional<Fields> child(std::string_view key) const;
  // A string, or a list of strings; empty: absent.
  std::vector<std::string> texts(std::string_view key, std::size_t most) const;

  // Throw when the field is absent.
  std::string required_text(std::string_view key) const;
  std::int64_t required_whole(std::string_view key, std::int64_t low, std::int64_t high) const;
  const JsonValue::List& required_list(std::string_view key) const;

  [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

 private:
  [[noreturn]] void wrong(std::string_view key, std::string_view wanted) const;

  const JsonValue* json_;
  std::string place_;
};

// The body of a request as a JSON object. Throws Error(invalid_argument) for anything else.
JsonValue parse_body(std::string_view body);
// Likewise, and an empty object where there is no body.
JsonValue parse_optional_body(std::string_view body);

// What a message of Fields is about: "messages[2].role"; empty: nothing in particular.
std::string_view field_of(std::string_view message);

}  // namespace kvtide::serve
