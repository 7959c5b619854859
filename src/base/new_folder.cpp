#include "base/new_folder.h"

#include <dirent.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {

namespace fs = std::filesystem;

namespace {

struct Close {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// The names in a folder, but for itself and the one it is in; none when it cannot be listed. Not by an iterator
// of std::filesystem, which ends the program when memory ends.
template <class Action>
void each_entry(const std::string& folder, Action action) {
  const std::unique_ptr<DIR, Close> entries(::opendir(folder.c_str()));
  if (!entries) return;
  while (const dirent* entry = ::readdir(entries.get()))
    if (const std::string_view name = entry->d_name; name != "." && name != "..") action(name);
}

bool is_empty(const std::string& folder) {
  bool empty = true;
  each_entry(folder, [&](std::string_view) { empty = false; });
  return empty;
}

void remove_all(const std::string& folder) {
  each_entry(folder, [&](std::string_view name) {
    const std::string path = folder + "/" + std::string(name);
    if (::unlink(path.c_str()) != 0) remove_all(path);
  });
  ::rmdir(folder.c_str());
}

}  // namespace

NewFolder::NewFolder(const std::string& path, std::string_view what, bool replaces)
    : path_(path), replaces_(replaces) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  std::error_code failure;
  if (!replaces_ && fs::exists(path_, failure) && !(fs::is_directory(path_, failure) && is_empty(path_)))
    throw Error(ErrorCode::invalid_argument,
                cat(path_, ": is there already; ", what, " go into a new or empty folder"));
  temporary_ = path_ + ".incomplete";
  if (!fs::create_directories(temporary_, failure))
    throw Error(ErrorCode::io, cat(temporary_, ": ",
                                   failure ? "cannot make this folder: " + failure.message()
                                           : "is there already: another export writes it, or one was "
                                             "interrupted and it can be removed"));
}

NewFolder::~NewFolder() {
  if (temporary_.empty()) return;
  try {
    remove_all(temporary_);
  } catch (const std::exception&) {  // no memory to list it in: it stays, and the next export says so
  }
}

void NewFolder::put_in_place() {
  std::error_code failure;
  const std::string old = path_ + ".replaced";
  const bool there = replaces_ && fs::exists(path_, failure);
  const auto rename = [&](const std::string& from, const std::string& to) {
    fs::rename(from, to, failure);
    return !failure;
  };
  const bool done = (!there || rename(path_, old)) && rename(temporary_, path_);
  if (!done) {
    const std::string why = failure.message();
    if (there && !fs::exists(path_, failure)) rename(old, path_);
    throw Error(ErrorCode::io, cat(path_, ": cannot rename ", temporary_, ": ", why));
  }
  temporary_.clear();
  if (there) remove_all(old);
}

}  // namespace kvtide
