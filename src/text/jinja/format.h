// format.h: the two ways of Python to put values into a text.
#pragma once

#include <string_view>

#include "text/jinja/marked_text.h"
#include "text/jinja/object.h"
#include "text/jinja/run.h"
#include "text/jinja/value.h"

namespace kvtide::jinja {

// "%s of %d": `values` is a tuple, a mapping for %(name)s, or the only value.
MarkedText percent_format(Run& run, const MarkedText& pattern, const Value& values);
// "{} of {name:>5}".
MarkedText brace_format(Run& run, const MarkedText& pattern, const Arguments& values);

// How a value is written into a field.
struct FieldStyle {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '='; 0: as the type has it
  char sign = '-';
  bool alternate = false;
  char group = 0;  // ',' or '_'
  std::int64_t width = 0, precision = -1;
  char type = 0;
};
MarkedText written_number(Run& run, const Value& number, const FieldStyle& style);
MarkedText aligned(Run& run, const MarkedText& text, const FieldStyle& style, char usual);

}  // namespace kvtide::jinja
