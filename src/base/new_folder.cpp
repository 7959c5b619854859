#include "base/new_folder.h"

#include <filesystem>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {

namespace fs = std::filesystem;

NewFolder::NewFolder(const std::string& path, std::string_view what) : path_(path) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  std::error_code failure;
  if (fs::exists(path_, failure) && !(fs::is_directory(path_, failure) && fs::is_empty(path_, failure)))
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
    fs::remove_all(temporary_);
  } catch (const std::exception&) {  // no memory to list it in: it stays, and the next export says so
  }
}

void NewFolder::put_in_place() {
  std::error_code failure;
  fs::rename(temporary_, path_, failure);
  if (failure)
    throw Error(ErrorCode::io, cat(path_, ": cannot rename ", temporary_, ": ", failure.message()));
  temporary_.clear();
}

}  // namespace kvtide
