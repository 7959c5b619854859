// faulty_files.h: a FileSystem that does what another one does, until a call of a given number fails.
//
// Ownership: refers to the other. A call that fails does nothing, with one exception that is Linux's own: a
// close that fails has closed the file.
#pragma once

#include <cerrno>
#include <cstdint>

#include "base/file.h"

namespace kvtide::testing {

struct Fault {
  std::int64_t at = 0;        // number of the failing call, counted from 1; 0: none
  int error = EIO;            // 0: no error, but a write or read of one byte
  bool from_then_on = false;  // all later calls fail, too
};

class FaultyFiles : public FileSystem {
 public:
  FaultyFiles(FileSystem& real, Fault fault) : real_(real), fault_(fault) {}

  std::int64_t calls() const { return calls_; }
  bool happened() const { return fault_.at > 0 && calls_ >= fault_.at; }

  int open(const char* path, int flags, unsigned mode) override {
    return fails() ? -1 : real_.open(path, flags, mode);
  }
  std::int64_t read(int fd, void* data, std::size_t size) override {
    return fails() ? -1 : real_.read(fd, data, shortened(size));
  }
  std::int64_t write(int fd, const void* data, std::size_t size) override {
    return fails() ? -1 : real_.write(fd, data, shortened(size));
  }
  std::int64_t size(int fd) override { return fails() ? -1 : real_.size(fd); }
  int sync(int fd) override { return fails() ? -1 : real_.sync(fd); }
  int close(int fd) override {
    const bool failing = fails();
    const int error = errno;
    const int closed = real_.close(fd);
    errno = error;
    return failing ? -1 : closed;
  }
  int rename(const char* from, const char* to) override { return fails() ? -1 : real_.rename(from, to); }
  int unlink(const char* path) override { return fails() ? -1 : real_.unlink(path); }

 private:
  bool due() const {
    return fault_.at > 0 && (fault_.from_then_on ? calls_ >= fault_.at : calls_ == fault_.at);
  }
  bool fails() {
    ++calls_;
    if (!due() || fault_.error == 0) return false;
    errno = fault_.error;
    return true;
  }
  std::size_t shortened(std::size_t size) const { return due() && size > 1 ? 1 : size; }

  FileSystem& real_;
  Fault fault_;
  std::int64_t calls_ = 0;
};

}  // namespace kvtide::testing
