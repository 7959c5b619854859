// A folder that is gone when the test is.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace kvtide::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("kvtide_coreml_" + std::to_string(::getpid()) + "_" + std::to_string(count++)))
                .string();
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace kvtide::testing
