// killing_files.h: the system's files, until a call of a given number, before or after which the process is
// killed.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/file.h"

namespace kvtide::testing {

class KillingFiles final : public FileSystem {
 public:
  // `at` counts from 1. Writes stop half way, so that there is a torn file between two calls of each.
  KillingFiles(std::int64_t at, bool after) : at_(at), after_(after) {}

  std::int64_t calls() const { return calls_; }

  int open(const char* path, int flags, unsigned mode) override {
    return call([&] { return real_.open(path, flags, mode); });
  }
  std::int64_t read(int fd, void* data, std::size_t size) override {
    return call([&] { return real_.read(fd, data, size); });
  }
  std::int64_t write(int fd, const void* data, std::size_t size) override {
    return call([&] { return real_.write(fd, data, std::max<std::size_t>(size / 2, 1)); });
  }
  std::int64_t size(int fd) override {
    return call([&] { return real_.size(fd); });
  }
  int sync(int fd) override {
    return call([&] { return real_.sync(fd); });
  }
  int close(int fd) override {
    return call([&] { return real_.close(fd); });
  }
  int rename(const char* from, const char* to) override {
    return call([&] { return real_.rename(from, to); });
  }
  int unlink(const char* path) override {
    return call([&] { return real_.unlink(path); });
  }
  void remove_leftovers(const std::string& path) noexcept override { real_.remove_leftovers(path); }

 private:
  template <class Call>
  auto call(const Call& real) -> decltype(real()) {
    ++calls_;
    if (calls_ == at_ && !after_) ::kill(::getpid(), SIGKILL);
    const auto result = real();
    if (calls_ == at_ && after_) ::kill(::getpid(), SIGKILL);
    return result;
  }

  PosixFiles real_;
  std::int64_t at_, calls_ = 0;
  bool after_;
};

}  // namespace kvtide::testing
