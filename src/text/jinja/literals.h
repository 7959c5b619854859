// literals.h: names, numbers and quoted texts where an expression begins with one.
//
// Thread rules: free functions from any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kvtide::jinja {

// The length of the name or number at the start of `text`; 0: there is none. A number may not follow a point.
std::size_t name_length(std::string_view text);
std::size_t integer_length(std::string_view text);
std::size_t real_length(std::string_view text);
// With its quotes; 0: there is none, or no end of it.
std::size_t quoted_length(std::string_view text);

// What stands between quotes, with Python's escapes replaced. nullopt: an escape that names no character.
std::optional<std::string> unescaped(std::string_view text);

}  // namespace kvtide::jinja
