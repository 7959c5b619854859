// json.h: a tree of JSON values, built to be written. Objects keep the order in which their members were set.
//
//   Json object = Json::object();
//   object.set("ppl", 12.5).set("chunks", Json::array(running));
//   print(object.text());
//
// Ownership: owns the tree.
// Thread rules: a plain value.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json_text.h"

namespace kvtide {

class Json {
 public:
  Json() = default;  // null
  Json(double value) : value_(value) {}
  Json(std::integral auto value) : value_(value) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const std::string& value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  template <class T>
  Json(const std::optional<T>& value) {  // nullopt: null
    if (value) *this = Json(*value);
  }
  template <class T>
  Json(const std::vector<T>& items) : Json(array(items)) {}

  explicit Json(JsonValue value) : value_(std::move(value)) {}

  static Json object() { return Json(JsonValue(JsonValue::Object())); }
  static Json array() { return Json(JsonValue(JsonValue::List())); }
  template <class Range>
  static Json array(const Range& range) {
    Json items = array();
    for (const auto& item : range) items.push(Json(item));
    return items;
  }

  // Of an object that has no member of this name, which is not looked for: files have 65,536 of them.
  Json& set(std::string_view name, Json value) {
    value_.object()->emplace_back(std::string(name), std::move(value.value_));
    return *this;
  }
  // Of an array.
  Json& push(Json value) {
    value_.list()->push_back(std::move(value.value_));
    return *this;
  }

  // Without `pretty` on one line (JsonForm::line), otherwise JsonForm::indented.
  std::string text(bool pretty = true) const { return text(pretty ? JsonForm::indented : JsonForm::line); }
  std::string text(JsonForm form) const { return json_text(value_, form); }

 private:
  JsonValue value_;
};

}  // namespace kvtide
