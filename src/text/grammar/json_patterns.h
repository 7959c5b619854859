// json_patterns.h: JSON as patterns: texts, numbers, white space, values of any kind.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/grammar/pattern.h"

namespace kvtide::grammar {

// Between the parts of lists and objects: nothing, a space, or a new line and spaces. Never more than that, or a model that
// likes white space would never end.
Pattern json_space();
// One character of a text, escaped or not. Halves of surrogate pairs cannot be written.
Pattern json_character();
Pattern json_text_of(int least, int most);
Pattern json_integer();
Pattern json_number();
// The whole numbers from `low` to `high`; nullopt: without end.
Pattern json_integer_between(std::optional<std::int64_t> low, std::optional<std::int64_t> high);
Pattern json_literal_text(std::string_view text);  // with its quotes

// Adds rules for values of any kind; the number of the one for objects, and of the one for any value.
struct AnyJson {
  int object, value;
};
AnyJson add_any_json(Grammar& grammar);
// open item, item, ... close; `most` kWithoutEnd: any number.
Pattern json_items(char open, const Pattern& item, int least, int most, char close);

}  // namespace kvtide::grammar
