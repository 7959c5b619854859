#include "tests/base/work_meter.h"

#include <cstddef>

namespace {
thread_local kvtide::Work done;
}  // namespace

namespace kvtide {
Work work_done() { return done; }
}  // namespace kvtide

extern "C" {

void __sanitizer_cov_trace_pc() { ++done.blocks; }

#ifndef KVTIDE_UNCOUNTED
// What the linker's --wrap puts in place of the C library's functions.
void* __real_memcpy(void*, const void*, std::size_t);
void* __real_memmove(void*, const void*, std::size_t);
void* __real_memset(void*, int, std::size_t);
int __real_memcmp(const void*, const void*, std::size_t);
void* __real_memchr(const void*, int, std::size_t);

void* __wrap_memcpy(void* to, const void* from, std::size_t size) {
  done.bytes += size;
  return __real_memcpy(to, from, size);
}
void* __wrap_memmove(void* to, const void* from, std::size_t size) {
  done.bytes += size;
  return __real_memmove(to, from, size);
}
void* __wrap_memset(void* to, int byte, std::size_t size) {
  done.bytes += size;
  return __real_memset(to, byte, size);
}
int __wrap_memcmp(const void* left, const void* right, std::size_t size) {
  done.bytes += size;
  return __real_memcmp(left, right, size);
}
void* __wrap_memchr(const void* from, int byte, std::size_t size) {
  done.bytes += size;
  return __real_memchr(from, byte, size);
}
#endif
}
