// memory_file.h: a file system of files in memory, so that a snapshot can be taken and read without a disk.
//
// Ownership: owns the bytes.
// Thread rules: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"

namespace kvtide {

class MemoryFile final : public FileSystem {
 public:
  int open(const char* path, int flags, unsigned mode) override;
  std::int64_t read(int fd, void* data, std::size_t size) override;
  std::int64_t write(int fd, const void* data, std::size_t size) override;
  std::int64_t size(int fd) override;
  int sync(int) override { return 0; }
  int close(int fd) override;
  int rename(const char* from, const char* to) override;
  int unlink(const char* path) override;

 private:
  struct Open {
    std::string path;
    std::size_t at = 0;
    bool folder = false;  // opened only to be synced
  };
  std::map<std::string, std::vector<std::byte>, std::less<>> files_;  // found without a copy of the name
  std::map<int, Open> open_;
  int next_ = 3;
};

}  // namespace kvtide
