// new_folder.h: a folder that takes its name when all is written, and disappears otherwise.
//
// Ownership: until put_in_place() the folder "<path>.incomplete" belongs to the object.
// Thread rules: one caller.
#pragma once

#include <string>
#include <string_view>

namespace kvtide {

class NewFolder {
 public:
  // what: goes into it, for messages: "shards". `replaces`: a folder that is there is removed when the new one is complete.
  // Throws Error: invalid_argument (`path` is there and holds something), io.
  NewFolder(const std::string& path, std::string_view what, bool replaces = false);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::string& path() const { return temporary_; }  // to write into
  void put_in_place();                                    // throws Error(io)

 private:
  std::string path_, temporary_;
  bool replaces_ = false;
};

}  // namespace kvtide
