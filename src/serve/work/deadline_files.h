// deadline_files.h: the system's files, or others, whose writes fail behind a point in time: a file that is half written
// then does not hold up the end of a process.
//
// Ownership: owns the others. Thread rules: from any thread, as far as the others are.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>

#include "base/file.h"

namespace kvtide::serve {

class DeadlineFiles final : public FileSystem {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit DeadlineFiles(std::unique_ptr<FileSystem> files) : files_(std::move(files)) {}
  void set(Time end) { end_ = end; }
  bool has_come() const { return std::chrono::steady_clock::now() > end_.load(); }

  int open(const char* path, int flags, unsigned mode) override { return files_->open(path, flags, mode); }
  std::int64_t read(int fd, void* data, std::size_t size) override { return files_->read(fd, data, size); }
  std::int64_t write(int fd, const void* data, std::size_t size) override {
    if (!has_come()) return files_->write(fd, data, size);
    errno = ETIMEDOUT;
    return -1;
  }
  std::int64_t size(int fd) override { return files_->size(fd); }
  int sync(int fd) override { return files_->sync(fd); }
  int close(int fd) override { return files_->close(fd); }
  int rename(const char* from, const char* to) override { return files_->rename(from, to); }
  int unlink(const char* path) override { return files_->unlink(path); }

 private:
  std::unique_ptr<FileSystem> files_;
  std::atomic<Time> end_{Time::max()};
};

}  // namespace kvtide::serve
