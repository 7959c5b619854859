// json_text.h: a tree of plain values (json_value.h) as JSON text: what a reader of ours reads back.
//
// Objects keep the order of their members. Numbers are written so that they read back as the same number; a
// number that is not finite cannot be written. Pure functions.
#pragma once

#include <string>

#include "base/json/json_value.h"

namespace kvtide {

// UTF-8, indented by two spaces, lists of plain values on one line, a line feed at the end; bytes that are
// not UTF-8 become U+FFFD. Throws Error(invalid_argument) for a number that is not finite.
std::string json_text(const JsonValue& value);

// The number that prints as the shortest text that stands for `value`: 1e-05 instead of 9.99999974737875e-06.
double short_number(float value);

}  // namespace kvtide
