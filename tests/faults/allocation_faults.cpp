#include "tests/faults/allocation_faults.h"

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <atomic>

#ifndef KVTIDE_ONLY_OPERATOR_NEW
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

std::atomic<unsigned> armed{0};  // kinds
std::atomic<std::int64_t> seen{0}, hit{0}, blocks{0}, mapped{0};
std::int64_t first = 0, last = 0;

// What starting a thread allocates is not counted beside the thread.
__attribute__((tls_model("initial-exec"))) thread_local bool inside_thread_start = false;

bool fails(unsigned kind) {
  if ((armed.load(std::memory_order_acquire) & kind) == 0 || inside_thread_start) return false;
  const std::int64_t number = seen.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number < first || number > last) return false;
  hit.fetch_add(1, std::memory_order_relaxed);
  errno = ENOMEM;
  return true;
}

void* noted(void* memory) {
  if (memory == nullptr) return nullptr;
  blocks.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void forget(void* memory) {
  if (memory == nullptr) return;
  blocks.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace

extern "C" {

void kvtide_faults_arm(std::int64_t at, int from_then_on, unsigned kinds) {
  seen = 0;
  hit = 0;
  first = at;
  last = at == 0 ? 0 : from_then_on != 0 ? INT64_MAX : at;
  armed.store(kinds, std::memory_order_release);
}

std::int64_t kvtide_faults_disarm(void) {
  armed = 0;
  return seen;
}

std::int64_t kvtide_faults_hit(void) { return hit; }

allocation_totals kvtide_faults_alive(void) { return {blocks, mapped}; }
}

#ifdef KVTIDE_ONLY_OPERATOR_NEW

// A sanitizer has a malloc and an mmap of its own, which must not be replaced.
namespace {
void* real_malloc(std::size_t size) { return std::malloc(size); }
void* real_aligned(std::size_t alignment, std::size_t size) {
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}
void real_free(void* memory) { std::free(memory); }
}  // namespace

#else

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

void* malloc(std::size_t size) { return fails(kvtide_malloc) ? nullptr : noted(__libc_malloc(size)); }
void* calloc(std::size_t count, std::size_t size) {
  return fails(kvtide_malloc) ? nullptr : noted(__libc_calloc(count, size));
}
void* memalign(std::size_t alignment, std::size_t size) {
  return fails(kvtide_malloc) ? nullptr : noted(__libc_memalign(alignment, size));
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  void* memory = memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}
void free(void* memory) {
  forget(memory);
  __libc_free(memory);
}
void* realloc(void* memory, std::size_t size) {
  if (fails(kvtide_malloc)) return nullptr;
  forget(memory);
  void* moved = __libc_realloc(memory, size);
  if (moved == nullptr && size > 0) noted(memory);
  return noted(moved);
}

void* mmap(void* address, std::size_t size, int protection, int flags, int fd, off_t offset) {
  if (fails(kvtide_mmap)) return MAP_FAILED;
  const long memory = syscall(SYS_mmap, address, size, protection, flags, fd, offset);
  if (memory != -1) mapped.fetch_add(static_cast<std::int64_t>((size + 4095) / 4096 * 4096));
  return reinterpret_cast<void*>(memory);
}
void* mmap64(void* address, std::size_t size, int protection, int flags, int fd, off_t offset) {
  return mmap(address, size, protection, flags, fd, offset);
}
int munmap(void* address, std::size_t size) {
  const auto result = static_cast<int>(syscall(SYS_munmap, address, size));
  if (result == 0) mapped.fetch_sub(static_cast<std::int64_t>((size + 4095) / 4096 * 4096));
  return result;
}
void* mremap(void* address, std::size_t before, std::size_t after, int flags, ...) {
  if (fails(kvtide_mmap)) return MAP_FAILED;
  std::va_list more;
  va_start(more, flags);
  void* wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(more, void*) : nullptr;
  va_end(more);
  const long memory = syscall(SYS_mremap, address, before, after, flags, wanted);
  if (memory != -1) mapped.fetch_add(static_cast<std::int64_t>(after) - static_cast<std::int64_t>(before));
  return reinterpret_cast<void*>(memory);
}
int madvise(void* address, std::size_t size, int advice) {
  return fails(kvtide_madvise) ? -1 : static_cast<int>(syscall(SYS_madvise, address, size, advice));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  using Create = decltype(&pthread_create);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (fails(kvtide_threads)) return EAGAIN;
  inside_thread_start = true;
  const int result = real(thread, attributes, start, argument);
  inside_thread_start = false;
  return result;
}
}

namespace {
void* real_malloc(std::size_t size) { return __libc_malloc(size); }
void* real_aligned(std::size_t alignment, std::size_t size) { return __libc_memalign(alignment, size); }
void real_free(void* memory) { __libc_free(memory); }
}  // namespace

#endif

namespace {

void* made(std::size_t size, std::size_t alignment) {
  const std::size_t wanted = size == 0 ? 1 : size;
  if (fails(kvtide_operator_new)) return nullptr;
  return noted(alignment == 0 ? real_malloc(wanted) : real_aligned(alignment, wanted));
}

void* made_or_thrown(std::size_t size, std::size_t alignment) {
  void* memory = made(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void given_back(void* memory) {
  forget(memory);
  real_free(memory);
}

std::size_t number(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace

void* operator new(std::size_t size) { return made_or_thrown(size, 0); }
void* operator new[](std::size_t size) { return made_or_thrown(size, 0); }
void* operator new(std::size_t size, std::align_val_t a) { return made_or_thrown(size, number(a)); }
void* operator new[](std::size_t size, std::align_val_t a) { return made_or_thrown(size, number(a)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return made(size, 0); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return made(size, 0); }
void* operator new(std::size_t size, std::align_val_t a, const std::nothrow_t&) noexcept {
  return made(size, number(a));
}
void* operator new[](std::size_t size, std::align_val_t a, const std::nothrow_t&) noexcept {
  return made(size, number(a));
}
void operator delete(void* memory) noexcept { given_back(memory); }
void operator delete[](void* memory) noexcept { given_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { given_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { given_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { given_back(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { given_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { given_back(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { given_back(memory); }
