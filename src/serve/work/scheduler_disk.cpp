// scheduler_disk.cpp: what waits for its beginning to come from the disk.
#include <algorithm>
#include <set>
#include <utility>

#include "serve/work/scheduler.h"

namespace kvtide::serve {
namespace scheduler_disk {

// What a state will hold in memory, about: rows begin on pages of their own, in a file they do not.
std::int64_t bytes_in_memory(const DiskEntry& entry, const State& shape) {
  if (shape.budget()) return entry.bytes;
  return std::max(entry.bytes, growth_bytes(shape, 0, static_cast<std::int64_t>(entry.tokens.size())));
}

}  // namespace scheduler_disk

// False: it can be admitted, with what has come or without anything.
bool Scheduler::waits_for_disk(Waiting& waiting) {
  if (options_.disk == nullptr || waiting.spec.from) return false;
  Lane& lane = lanes_[waiting.model];
  if (!waiting.disk) {
    if (std::exchange(waiting.looked, true)) return false;
    const std::int64_t known = lane.cache().find(waiting.spec.prompt, *waiting.shape).length;
    auto read = options_.disk->find(lane.model(), waiting.spec.prompt, *waiting.shape, known);
    if (!read) return false;
    for (const Waiting& other : queue_)
      if (other.disk && other.disk->entry.file == read->entry.file) read = other.disk;
    if (!read->begun) {
      if (!make_room(scheduler_disk::bytes_in_memory(read->entry, *waiting.shape))) return false;
      options_.disk->fetch(read);
    }
    waiting.disk = std::move(read);
  }
  if (!waiting.disk->done) return true;
  // The first that comes back for it puts it where all find it.
  const std::shared_ptr<DiskRead> read = std::exchange(waiting.disk, nullptr);
  if (!read->state) return false;
  State state = std::move(*read->state);
  read->state.reset();
  StateBytes bytes;
  bytes.add(state);
  if (make_room(bytes.total())) lane.cache().keep(std::move(state), waiting.spec.key);
  return false;
}

bool Scheduler::disk_works() const {
  if (options_.disk == nullptr) return false;
  return options_.disk->writes() || std::any_of(queue_.begin(), queue_.end(), [](const Waiting& waiting) {
           return waiting.disk && !waiting.disk->done;
         });
}

// Of states that are being read.
std::int64_t Scheduler::reserved_bytes() const {
  std::int64_t bytes = 0;
  std::set<const DiskRead*> counted;
  for (const Waiting& waiting : queue_)
    if (waiting.disk && counted.insert(waiting.disk.get()).second)
      bytes += scheduler_disk::bytes_in_memory(waiting.disk->entry, *waiting.shape);
  return bytes;
}

}  // namespace kvtide::serve
