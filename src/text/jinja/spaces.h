// spaces.h: white space as Python's str.strip() and \s know it.
//
// Thread rules: free functions from any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvtide::jinja {

bool is_python_space(char32_t c);
// Bytes of white space at the start and at the end of valid UTF-8.
std::size_t leading_spaces(std::string_view text);
std::size_t trailing_spaces(std::string_view text);
// Where the last character of `text`, which is not empty, begins.
std::size_t last_character(std::string_view text);

}  // namespace kvtide::jinja
