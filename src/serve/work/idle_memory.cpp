#include "serve/work/idle_memory.h"

#include <algorithm>
#include <chrono>
#include <vector>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "kvtide/error.h"

namespace kvtide::serve {

void IdleMemory::start() {
  thread_ = std::thread([this] { run(); });
}

void IdleMemory::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void IdleMemory::run() {
  const auto [shorter, longer] = std::minmax({times_.prefixes, times_.models});
  const double least = shorter > 0 ? shorter : longer;
  const auto pause = std::chrono::duration<double>(std::clamp(least / 4, 0.1, 10.0));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [&] { return stopping_; })) {
    lock.unlock();
    try {
      if (disk_ != nullptr && times_.prefixes > 0) spill_prefixes();
      if (times_.models > 0) unload_models();
    } catch (const Error&) {
      // The server is about to stop, or memory is short: the next look tells.
    } catch (const std::bad_alloc&) {
    }
    lock.lock();
  }
}

std::int64_t IdleMemory::spill_prefixes() {
  std::int64_t gone = 0;
  scheduler_.between_steps([&](std::vector<Lane>& lanes) {
    decltype(prefixes_) still;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      std::vector<std::int64_t> idle;
      for (const PrefixCache::Entry& entry : lanes[lane].cache().entries()) {
        if (entry.by_number || entry.named || entry.kept) continue;
        Seen seen{entry.used, {}};
        if (const auto before = prefixes_.find({lane, entry.id});
            before != prefixes_.end() && before->second.used == entry.used)
          seen = before->second;
        still.emplace(std::pair(lane, entry.id), seen);
        if (seen.since.seconds() < times_.prefixes) continue;
        disk_->write(lanes[lane].model(), entry.state, true);
        if (disk_->holds(lanes[lane].model(), entry.state)) idle.push_back(entry.id);
      }
      for (const std::int64_t id : idle) lanes[lane].cache().drop(id);
      gone += static_cast<std::int64_t>(idle.size());
    }
    prefixes_ = std::move(still);
  });
  return gone;
}

std::int64_t IdleMemory::unload_models() {
  std::int64_t gone = 0;
  scheduler_.between_steps([&](std::vector<Lane>& lanes) {
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      Seen& seen = models_[i];
      if (!lanes[i].running().empty() || seen.used != lanes[i].begun()) {
        seen = {lanes[i].begun(), {}, false};
      } else if (!seen.unloaded && seen.since.seconds() >= times_.models) {
        lanes[i].model().release_pages();
        seen.unloaded = true;
        ++gone;
        unloads_.fetch_add(1, std::memory_order_relaxed);
      }
    }
  });
#ifdef __GLIBC__
  if (gone > 0) ::malloc_trim(0);
#endif
  return gone;
}

}  // namespace kvtide::serve
