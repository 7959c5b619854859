#include "cli/commands/cache_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace kvtide {
namespace {

// An absolute path in the environment; relative ones are to be ignored, says the XDG base directory
// specification.
std::string folder_from(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

}  // namespace

std::string cache_folder(const Arguments& arguments) {
  if (arguments.memory.no_cache) return "";
  std::string base = folder_from("XDG_CACHE_HOME");
  if (base.empty()) {
    base = folder_from("HOME");
    if (base.empty()) return "";
    base += "/.cache";
  }
  const std::string folder = base + "/kvtide";
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  return failure ? "" : folder;
}

}  // namespace kvtide
