#include "formats/text_file.h"

#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

std::string read_whole_text(const std::string& path) {
  PosixFiles files;
  FileReader reader(files, path);
  if (reader.size() == 0) throw Error(ErrorCode::bad_format, cat(path, ": the file is empty"));
  if (reader.size() > kLongestTextFile)
    throw Error(ErrorCode::bad_format,
                cat(path, ": has ", reader.size(), " bytes; at most ", kLongestTextFile, " are read"));
  std::string text(static_cast<std::size_t>(reader.size()), '\0');
  reader.read(std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace kvtide
