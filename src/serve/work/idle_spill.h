// idle_spill.h: prefixes that nobody used for a time go to the disk and give their memory back.
//
// Ownership: owns its thread; refers to scheduler and disk. Thread rules: start and stop once; pass() by one caller.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/stopwatch.h"
#include "serve/work/disk_cache.h"
#include "serve/work/scheduler.h"

namespace kvtide::serve {

class IdleSpill {
 public:
  IdleSpill(Scheduler& scheduler, DiskCache& disk, double seconds)
      : scheduler_(scheduler), disk_(disk), seconds_(seconds) {}
  ~IdleSpill() { stop(); }
  IdleSpill(const IdleSpill&) = delete;
  IdleSpill& operator=(const IdleSpill&) = delete;

  void start();
  void stop();
  // Looks once. Gives up what was idle for the time and lies on the disk; what does not yet is written for the next look.
  // States that somebody was told the number of, or asked to keep, stay.
  std::int64_t pass();

 private:
  struct Seen {
    std::uint64_t used = 0;  // PrefixCache::Entry::used
    Stopwatch since;
  };
  void run();

  Scheduler& scheduler_;
  DiskCache& disk_;
  double seconds_;
  std::map<std::pair<std::size_t, std::int64_t>, Seen> seen_;  // by lane and number
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace kvtide::serve
