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

std::string cache_place() {
  if (const std::string base = folder_from("XDG_CACHE_HOME"); !base.empty()) return base + "/kvtide";
  const std::string home = folder_from("HOME");
  return home.empty() ? "" : home + "/.cache/kvtide";
}

void place_packed_weights(Arguments& arguments) {
  const std::string place = arguments.memory.no_cache ? "" : cache_place();
  arguments.loading.packed.folder = place.empty() ? "" : place + "/weights";
}

std::string cache_folder(const Arguments& arguments) {
  const std::string folder = arguments.memory.no_cache ? "" : cache_place();
  if (folder.empty()) return "";
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  return failure ? "" : folder;
}

}  // namespace kvtide
