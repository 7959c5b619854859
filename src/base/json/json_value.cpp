#include "base/json/json_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// Receives the events of the parser and builds the tree; its stack is ours, so depth costs no stack of the
// program.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(std::string_view file) : file_(file) {}

  JsonValue take() { return std::move(root_.front()); }

  bool null() override { return add(JsonValue()); }
  bool boolean(bool value) override { return add(JsonValue(value)); }
  // Of negative numbers; 0 stands for -0.
  bool number_integer(number_integer_t value) override {
    return add(value == 0 ? JsonValue(-0.0) : JsonValue(std::int64_t{value}));
  }
  bool number_unsigned(number_unsigned_t value) override {
    JsonValue whole(value);
    return add(whole.integer() != nullptr ? std::move(whole) : JsonValue(static_cast<double>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(JsonValue(value)); }
  bool string(string_t& value) override { return add(JsonValue(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool key(string_t& value) override {
    open_.back().names.push_back(std::move(value));
    return true;
  }
  bool end_object() override {
    Level level = std::move(open_.back());
    open_.pop_back();
    std::vector<std::string_view> sorted(level.names.begin(), level.names.end());
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) refuse(cat("the name ", quoted(*twice), " stands twice in one object"));
    JsonValue::Object object;
    object.reserve(level.names.size());
    for (std::size_t i = 0; i < level.names.size(); ++i)
      object.emplace_back(std::move(level.names[i]), std::move(level.values[i]));
    return add(JsonValue(std::move(object)));
  }
  bool end_array() override {
    Level level = std::move(open_.back());
    open_.pop_back();
    return add(JsonValue(std::move(level.values)));
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) override {
    refuse(cat("is not valid JSON at byte ", at));
  }

 private:
  struct Level {
    std::vector<std::string> names;  // of an object
    JsonValue::List values;
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::bad_format, cat(file_, ": ", why));
  }
  bool open() {
    if (open_.size() == static_cast<std::size_t>(JsonValue::kMostDepth))
      refuse(cat("nests more than ", JsonValue::kMostDepth, " levels deep"));
    open_.emplace_back();
    return true;
  }
  bool add(JsonValue value) {
    (open_.empty() ? root_ : open_.back().values).push_back(std::move(value));
    return true;
  }

  std::string_view file_;
  std::vector<Level> open_;
  JsonValue::List root_;  // one value in the end
};

}  // namespace

JsonValue JsonValue::parse(std::string_view text, std::string_view file) {
  // The parser takes a zero byte for the end of its input.
  if (const std::size_t zero = text.find('\0'); zero != text.npos)
    throw Error(ErrorCode::bad_format, cat(file, ": is not valid JSON at byte ", zero));
  Builder builder(file);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
    throw Error(ErrorCode::bad_format, cat(file, ": is not valid JSON"));
  return builder.take();
}

std::optional<double> JsonValue::number() const {
  if (const auto* whole = integer()) return static_cast<double>(*whole);
  if (const auto* large = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*large);
  if (const auto* real = std::get_if<double>(&value_)) return *real;
  return std::nullopt;
}

std::string_view JsonValue::kind() const {
  static constexpr std::string_view kKinds[] = {"null",      "true or false", "a whole number",
                                                "a number",  "a string",      "a list",
                                                "an object", "a whole number"};
  return kKinds[value_.index()];
}

const JsonValue* JsonValue::find(std::string_view name) const {
  if (const Object* members = object())
    for (const Member& member : *members)
      if (member.first == name) return &member.second;
  return nullptr;
}

// Single strings and numbers only: the destructor of the library's trees needs memory, and ends the program
// without.
std::string JsonValue::text_of(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string JsonValue::text_of(double number) { return nlohmann::json(number).dump(); }

std::string JsonValue::plain_text() const {
  if (const auto* value = text()) return text_of(std::string_view(*value));
  if (const auto* value = boolean()) return *value ? "true" : "false";
  if (const auto* value = integer()) return std::to_string(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return std::to_string(*value);
  if (const auto value = number()) return text_of(*value);
  return "null";
}

}  // namespace kvtide
