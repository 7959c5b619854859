// time_limit.h: how long a test may wait for others, and what it says when that was not enough.
//
// A hang has to end the test program, since nothing else can end a join. Thread rules: made and destroyed by
// one thread. In a child of fork there is no thread that could watch: use alarm().
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace kvtide::testing {

class TimeLimit {
 public:
  static constexpr int kSeconds = 240;  // of a hang: no test that works comes near it, sanitizers included

  // `awaited`: "the forks to finish".
  explicit TimeLimit(std::string awaited, int seconds = kSeconds) {
    if (::pipe2(ends_, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    watcher_ = std::thread([this, awaited = std::move(awaited), seconds] {
      pollfd done{ends_[0], POLLIN, 0};
      int events = -1;
      while ((events = ::poll(&done, 1, seconds * 1000)) < 0 && errno == EINTR) continue;
      if (events != 0) return;
      std::fprintf(stderr, "waited %d s for %s\n", seconds, awaited.c_str());
      ::_exit(3);
    });
  }
  ~TimeLimit() {
    while (::write(ends_[1], "", 1) < 0 && errno == EINTR) continue;
    watcher_.join();
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  int ends_[2];
  std::thread watcher_;
};

}  // namespace kvtide::testing
