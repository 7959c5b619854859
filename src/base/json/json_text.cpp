#include "base/json/json_text.h"

#include <charconv>
#include <cmath>

#include "base/json/json_line.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// The text of a string, a number or a word.
std::string scalar(const JsonValue& value) {
  if (value.text() != nullptr) return json_scalar(std::string_view(*value.text()));
  if (value.boolean() != nullptr) return *value.boolean() ? "true" : "false";
  if (value.integer() != nullptr) return std::to_string(*value.integer());
  if (value.is_null()) return "null";
  if (!std::isfinite(*value.number()))
    throw Error(ErrorCode::invalid_argument, "JSON cannot hold a number that is not finite");
  return json_scalar(*value.number());
}

bool is_plain(const JsonValue& value) { return value.list() == nullptr && value.object() == nullptr; }

void write(const JsonValue& value, const std::string& indent, std::string& out) {
  if (is_plain(value)) {
    out += scalar(value);
    return;
  }
  const std::string inner = indent + "  ";
  const char* separator = "";
  if (value.list() != nullptr) {
    bool plain = true;
    for (const JsonValue& item : *value.list()) plain = plain && is_plain(item);
    out += "[";
    for (const JsonValue& item : *value.list()) {
      out += separator;
      out += plain ? (*separator != '\0' ? " " : "") : "\n" + inner;
      write(item, inner, out);
      separator = ",";
    }
    out += plain ? "]" : "\n" + indent + "]";
    return;
  }
  out += "{";
  for (const auto& [name, member] : *value.object()) {
    out += separator;
    out += "\n" + inner + scalar(JsonValue(name)) + ": ";
    write(member, inner, out);
    separator = ",";
  }
  out += value.object()->empty() ? "}" : "\n" + indent + "}";
}

}  // namespace

std::string json_text(const JsonValue& value) {
  std::string out;
  write(value, "", out);
  return out + "\n";
}

double short_number(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double number = 0.0;
  std::from_chars(text, end, number);
  return number;
}

}  // namespace kvtide
