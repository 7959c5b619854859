#include "tests/hostile/allocation_meter.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> live{0};
std::atomic<std::size_t> most{0};

void* take(std::size_t size) {
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t now = live += malloc_usable_size(memory);
  std::size_t before = most.load();
  while (before < now && !most.compare_exchange_weak(before, now)) {
  }
  return memory;
}

void give(void* memory) noexcept {
  if (memory != nullptr) live -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return take(size); }
void* operator new[](std::size_t size) { return take(size); }
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, std::size_t) noexcept { give(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give(memory); }

namespace kvtide::testing {

AllocationMeter::AllocationMeter() : at_start_(live.load()) { most.store(at_start_); }

std::size_t AllocationMeter::peak() const {
  const std::size_t peak = most.load();
  return peak > at_start_ ? peak - at_start_ : 0;
}

}  // namespace kvtide::testing
