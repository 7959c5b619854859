// value_text.h: values as text, letter for letter as Python's str(), repr() and json.dumps() print them.
//
// Each refuses, by way of the run, what is too large.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/marked_text.h"
#include "text/jinja/run.h"
#include "text/jinja/value.h"

namespace kvtide::jinja {

// str(): what is printed. Undefined prints as nothing.
MarkedText printed(Run& run, const Value& value);
// repr(): texts in quotes.
MarkedText represented(Run& run, const Value& value);
std::string quoted_as_python(std::string_view text);
std::string real_text(double value);

struct JsonStyle {
  bool ascii = false, sorted = false;
  std::optional<std::string> indent;  // of one level
  std::string between_items = ", ", behind_key = ": ";
};
MarkedText json_of(Run& run, const Value& value, const JsonStyle& style);

}  // namespace kvtide::jinja
