// worker.h: a thread for work that would hold up connections or steps: reading and writing files.
//
// Ownership: owns the thread; what is queued is done before it ends. Thread rules: apart() from any thread; start() once.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace kvtide::serve {

class Worker {
 public:
  Worker() = default;
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start();
  void stop();  // when all that is queued is done
  // Without start() the work is done at once. It must not throw.
  void apart(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // under mutex_
  bool stopping_ = false;                    // under mutex_
  std::thread thread_;
};

}  // namespace kvtide::serve
