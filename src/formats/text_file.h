// text_file.h: small files of a checkpoint's folder: are they there, and what do they say.
#pragma once

#include <string>

namespace kvtide {

bool file_exists(const std::string& path);  // a regular file
bool is_folder(const std::string& path);

// The whole file. Throws Error: not_found, bad_format (no regular file, empty, or longer than
// kLongestTextFile), io.
inline constexpr std::size_t kLongestTextFile = std::size_t{256} << 20;
std::string read_whole_text(const std::string& path);

}  // namespace kvtide
