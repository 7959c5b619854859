// number_reading.h: texts as numbers, as Python's int() and float() read them.
//
// Thread rules: free functions from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvtide::jinja {

// nullopt: it is none, or has more than 63 bits. Base 0 goes by the prefix.
std::optional<std::int64_t> read_whole(std::string_view text, int base);
std::optional<double> read_real(std::string_view text);

}  // namespace kvtide::jinja
