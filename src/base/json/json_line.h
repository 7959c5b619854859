// json_line.h: JSON on one line, written while it is made: no tree of values in between.
//
//   JsonLine json;
//   json.object([&] {
//     json.member("rows", 3);
//     json.member("shape", std::vector<std::int64_t>{3, 4});
//   });
//   file.write(json.text());  // {"rows":3,"shape":[3,4]}
//
// Members stand in the order in which they are written.
// Ownership: owns its text.
// Thread rules: one thread.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_value.h"

namespace kvtide {

class JsonLine {
 public:
  const std::string& text() const { return text_; }

  template <class Body>
  void object(Body body) {
    separate();
    text_ += '{';
    body();
    text_ += '}';
  }
  template <class Body>
  void list(Body body) {
    separate();
    text_ += '[';
    body();
    text_ += ']';
  }
  // The name of the next value.
  void key(std::string_view name) {
    value(name);
    text_ += ':';
  }
  template <class T>
  void member(std::string_view name, const T& of) {
    key(name);
    value(of);
  }

  void value(std::nullptr_t) { put("null"); }
  void value(bool of) { put(of ? "true" : "false"); }
  void value(std::integral auto of) {
    char digits[24];
    put({digits, std::to_chars(digits, digits + sizeof digits, of).ptr});
  }
  void value(std::floating_point auto of) { put(JsonValue::text_of(static_cast<double>(of))); }
  void value(std::string_view of) { put(JsonValue::text_of(of)); }
  void value(const char* of) { put(JsonValue::text_of(std::string_view(of))); }
  void value(const std::string& of) { put(JsonValue::text_of(std::string_view(of))); }
  template <class T>
  void value(const std::optional<T>& of) {
    of ? value(*of) : value(nullptr);
  }
  template <class T>
  void value(const std::vector<T>& of) {
    list([&] {
      for (const T& item : of) value(item);
    });
  }

 private:
  // Behind another value of the same object or list.
  void separate() {
    if (!text_.empty() && text_.back() != '{' && text_.back() != '[' && text_.back() != ':') text_ += ',';
  }
  void put(std::string_view scalar) {
    separate();
    text_ += scalar;
  }

  std::string text_;
};

}  // namespace kvtide
