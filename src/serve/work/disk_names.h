// disk_names.h: the names of the files of prefixes in a folder, "b179c9523d0e6a0f-00000000000c.kv": the model's hash and a
// number, both in hexadecimal digits. When one was last used is the time of its last change.
//
// Pure functions, but for the last two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvtide::serve {

inline constexpr std::size_t kModelDigits = 16;

std::string prefix_file_name(std::string_view model, std::uint64_t number);
bool is_prefix_file(std::string_view name);
bool is_half_written(std::string_view name);              // what a killed process left
std::uint64_t prefix_file_number(std::string_view name);  // of a prefix file

double seconds_now();  // since 1970
double last_used(const std::string& path);
void use_now(const std::string& path);

}  // namespace kvtide::serve
