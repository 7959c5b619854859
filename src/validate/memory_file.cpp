#include "validate/memory_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace kvtide {

int MemoryFile::open(const char* path, int flags, unsigned) {
  if ((flags & O_CREAT) != 0) files_[path];
  const bool folder = files_.find(path) == files_.end();
  if (folder && (flags & O_DIRECTORY) == 0) {
    errno = ENOENT;
    return -1;
  }
  open_[next_] = {path, 0, folder};
  return next_++;
}

std::int64_t MemoryFile::read(int fd, void* data, std::size_t size) {
  Open& file = open_.at(fd);
  const std::vector<std::byte>& bytes = files_.at(file.path);
  const std::size_t count = std::min(size, bytes.size() - file.at);
  if (count > 0) std::memcpy(data, bytes.data() + file.at, count);
  file.at += count;
  return static_cast<std::int64_t>(count);
}

std::int64_t MemoryFile::write(int fd, const void* data, std::size_t size) {
  std::vector<std::byte>& bytes = files_.at(open_.at(fd).path);
  const auto* from = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), from, from + size);
  return static_cast<std::int64_t>(size);
}

std::int64_t MemoryFile::size(int fd) {
  return static_cast<std::int64_t>(files_.at(open_.at(fd).path).size());
}

int MemoryFile::close(int fd) {
  open_.erase(fd);
  return 0;
}

int MemoryFile::rename(const char* from, const char* to) {
  auto bytes = std::move(files_.at(from));
  files_.erase(from);
  files_[to] = std::move(bytes);
  return 0;
}

int MemoryFile::unlink(const char* path) {
  // Called on the way out of a failure: it must not need memory.
  if (const auto found = files_.find(std::string_view(path)); found != files_.end()) files_.erase(found);
  return 0;
}

}  // namespace kvtide
