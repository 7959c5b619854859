// memory_files.h: a FileSystem of files in memory, for tests: as fast as memory, and every call can be made
// to fail.
//
// Ownership: owns its files. Thread rules: one thread. What the disk would hold after a loss of power is not
// modelled; what a reader finds under a name is.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace kvtide::testing {

class MemoryFiles : public FileSystem {
 public:
  using Bytes = std::vector<std::byte>;

  // Contents by name; a name that is absent does not exist.
  std::map<std::string, std::shared_ptr<Bytes>> names;

  void put(const std::string& path, Bytes bytes) { names[path] = std::make_shared<Bytes>(std::move(bytes)); }
  const Bytes& get(const std::string& path) const { return *names.at(path); }
  std::size_t open_files() const { return open_.size(); }

  int open(const char* path, int flags, unsigned) override {
    Open file;
    if ((flags & O_DIRECTORY) == 0) {
      const auto found = names.find(path);
      if ((flags & O_CREAT) != 0) {
        if (found != names.end() && (flags & O_EXCL) != 0) return failure(EEXIST);
        names[path] = std::make_shared<Bytes>();
      } else if (found == names.end()) {
        return failure(ENOENT);
      }
      file.bytes = names[path];
    }
    open_[next_] = file;
    return next_++;
  }
  std::int64_t read(int fd, void* data, std::size_t size) override {
    const auto found = open_.find(fd);
    if (found == open_.end() || !found->second.bytes) return failure(EBADF);
    Open& file = found->second;
    const std::size_t count = std::min(size, file.bytes->size() - std::min(file.at, file.bytes->size()));
    if (count > 0) std::memcpy(data, file.bytes->data() + file.at, count);
    file.at += count;
    return static_cast<std::int64_t>(count);
  }
  std::int64_t write(int fd, const void* data, std::size_t size) override {
    const auto found = open_.find(fd);
    if (found == open_.end() || !found->second.bytes) return failure(EBADF);
    const auto* bytes = static_cast<const std::byte*>(data);
    found->second.bytes->insert(found->second.bytes->end(), bytes, bytes + size);
    return static_cast<std::int64_t>(size);
  }
  std::int64_t size(int fd) override {
    const auto found = open_.find(fd);
    if (found == open_.end() || !found->second.bytes) return failure(EINVAL);
    return static_cast<std::int64_t>(found->second.bytes->size());
  }
  int sync(int fd) override { return open_.contains(fd) ? 0 : failure(EBADF); }
  int close(int fd) override { return open_.erase(fd) == 1 ? 0 : failure(EBADF); }
  int rename(const char* from, const char* to) override {
    const auto found = names.find(from);
    if (found == names.end()) return failure(ENOENT);
    const auto bytes = found->second;
    names.erase(found);
    names[to] = bytes;
    return 0;
  }
  int unlink(const char* path) override { return names.erase(path) == 1 ? 0 : failure(ENOENT); }

 protected:
  static int failure(int error) {
    errno = error;
    return -1;
  }

 private:
  struct Open {
    std::shared_ptr<Bytes> bytes;  // of a folder: none
    std::size_t at = 0;
  };
  std::map<int, Open> open_;
  int next_ = 100;
};

}  // namespace kvtide::testing
