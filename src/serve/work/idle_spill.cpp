#include "serve/work/idle_spill.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kvtide/error.h"

namespace kvtide::serve {

void IdleSpill::start() {
  thread_ = std::thread([this] { run(); });
}

void IdleSpill::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void IdleSpill::run() {
  const auto pause = std::chrono::duration<double>(std::clamp(seconds_ / 4, 0.1, 10.0));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [&] { return stopping_; })) {
    lock.unlock();
    try {
      pass();
    } catch (const Error&) {
      // The server is about to stop, or memory is short: the next look tells.
    } catch (const std::bad_alloc&) {
    }
    lock.lock();
  }
}

std::int64_t IdleSpill::pass() {
  std::int64_t gone = 0;
  scheduler_.between_steps([&](std::vector<Lane>& lanes) {
    decltype(seen_) still;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      std::vector<std::int64_t> idle;
      for (const PrefixCache::Entry& entry : lanes[lane].cache().entries()) {
        if (entry.by_number || entry.named || entry.kept) continue;
        Seen seen{entry.used, {}};
        if (const auto before = seen_.find({lane, entry.id});
            before != seen_.end() && before->second.used == entry.used)
          seen = before->second;
        still.emplace(std::pair(lane, entry.id), seen);
        if (seen.since.seconds() < seconds_) continue;
        disk_.write(lanes[lane].model(), entry.state, true);
        if (disk_.holds(lanes[lane].model(), entry.state)) idle.push_back(entry.id);
      }
      for (const std::int64_t id : idle) lanes[lane].cache().drop(id);
      gone += static_cast<std::int64_t>(idle.size());
    }
    seen_ = std::move(still);
  });
  return gone;
}

}  // namespace kvtide::serve
