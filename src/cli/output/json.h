// json.h: JSON values to be printed. Objects keep the order in which their keys were set.
//
//   Json object = Json::object();
//   object.set("ppl", 12.5).set("chunks", Json::array(running));
//   print(object.text());
//
// Ownership: a plain value. Only json.cpp knows which library prints it.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace kvtide {

class Json {
 public:
  Json();  // null
  Json(std::same_as<bool> auto value) : Json(from_bool(value)) {}
  Json(double value);
  Json(std::signed_integral auto value) : Json(from_signed(value)) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Json(T value) : Json(from_unsigned(value)) {}
  Json(std::string_view value);
  Json(const std::string& value) : Json(std::string_view(value)) {}
  Json(const char* value) : Json(std::string_view(value)) {}
  Json(Json&& other) noexcept;
  Json& operator=(Json&& other) noexcept;
  ~Json();

  static Json object();
  static Json array();
  template <class Range>
  static Json array(const Range& range) {
    Json items = array();
    for (const auto& item : range) items.push(Json(item));
    return items;
  }

  Json& set(std::string_view key, Json value);  // of an object that lacks the key
  Json& push(Json value);                       // of an array

  // UTF-8, indented by two spaces; without `pretty` on one line. Bytes that are not UTF-8 become U+FFFD,
  // numbers that are not finite become null.
  std::string text(bool pretty = true) const;

 private:
  struct Tree;
  explicit Json(std::unique_ptr<Tree> tree);
  static Json from_bool(bool value);
  static Json from_signed(std::int64_t value);
  static Json from_unsigned(std::uint64_t value);
  std::unique_ptr<Tree> tree_;
};

// A JSON object read back: its numbers and texts by key. null and everything nested is left out.
struct FlatJson {
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
};
// Throws Error(bad_format) that names `name` for anything but an object.
FlatJson parse_flat_json(std::string_view text, const std::string& name);

}  // namespace kvtide
