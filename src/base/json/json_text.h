// json_text.h: a tree of plain values (json_value.h) as JSON text.
//
// Objects keep the order of their members, numbers read back as the same number, bytes that are not UTF-8
// become U+FFFD. Pure functions.
#pragma once

#include <string>

#include "base/json/json_value.h"

namespace kvtide {

enum class JsonForm {
  line,      // one line without spaces
  indented,  // by two spaces, each value on a line of its own
  file,      // indented, but lists of plain values on one line, and a line feed at the end
};

// A number that is not finite becomes null; in the form of a file, which is read back, it throws
// Error(invalid_argument).
std::string json_text(const JsonValue& value, JsonForm form);

// The number that prints as the shortest text that stands for `value`: 1e-05 instead of 9.99999974737875e-06.
double short_number(float value);

}  // namespace kvtide
