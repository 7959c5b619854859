// idle_memory.h: what nobody used for a time gives its memory back: prefixes go to the disk, weights stay in their files.
//
// Ownership: owns its thread; refers to scheduler and disk. Thread rules: start and stop once; the passes by one caller.
#pragma once

#include <atomic>
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

struct IdleTimes {
  double prefixes = 0, models = 0;  // seconds; 0: they stay
};

class IdleMemory {
 public:
  // Without a disk prefixes stay.
  IdleMemory(Scheduler& scheduler, DiskCache* disk, IdleTimes times)
      : scheduler_(scheduler), disk_(disk), times_(times) {}
  ~IdleMemory() { stop(); }
  IdleMemory(const IdleMemory&) = delete;
  IdleMemory& operator=(const IdleMemory&) = delete;

  void start();
  void stop();
  // Looks once. Gives up what was idle for the time and lies on the disk; what does not yet is written for the next look.
  // States that somebody was told the number of, or asked to keep, stay.
  std::int64_t spill_prefixes();
  // Looks once. Models whose weights were given back; one counts again after an answer of it.
  std::int64_t unload_models();
  // How often models gave their weights back. From any thread.
  std::int64_t unloads() const { return unloads_.load(std::memory_order_relaxed); }

 private:
  struct Seen {
    std::uint64_t used = 0;  // PrefixCache::Entry::used, or Lane::begun
    Stopwatch since;
    bool unloaded = false;
  };
  void run();

  Scheduler& scheduler_;
  DiskCache* disk_;
  IdleTimes times_;
  std::map<std::pair<std::size_t, std::int64_t>, Seen> prefixes_;  // by lane and number
  std::map<std::size_t, Seen> models_;                             // by lane
  std::atomic<std::int64_t> unloads_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace kvtide::serve
