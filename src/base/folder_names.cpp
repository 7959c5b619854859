#include "base/folder_names.h"

#include <dirent.h>

#include <algorithm>
#include <memory>

namespace kvtide {
namespace {

struct CloseNames {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

}  // namespace

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  // Not with an iterator of std::filesystem, which ends the program when memory ends.
  const std::unique_ptr<DIR, CloseNames> entries(::opendir(folder.c_str()));
  if (!entries) return names;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace kvtide
