#include "base/buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/pages.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {
constexpr std::size_t kLargePage = std::size_t{2} << 20;
}

Buffer::Buffer(std::size_t size, Pages pages) : size_(size) {
  if (size == 0) return;
  const std::size_t spare = pages == Pages::large ? kLargePage : 0;
  void* memory = size + spare < size ? MAP_FAILED
                                     : ::mmap(nullptr, size + spare, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    size_ = 0;
    throw Error(ErrorCode::out_of_memory, cat("cannot reserve ", size, " bytes of memory"));
  }
  data_ = static_cast<std::byte*>(memory);
  // Hints: failing changes nothing.
  if (pages == Pages::small) ::madvise(memory, size, MADV_NOHUGEPAGE);
  if (pages != Pages::large) return;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(memory) % kLargePage;
  const std::size_t kept = page_ceil(size);
  if (before > 0) ::munmap(memory, before);
  data_ += before;
  if (before + kept < size + spare) ::munmap(data_ + kept, size + spare - before - kept);
  ::madvise(data_, size, MADV_HUGEPAGE);
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void Buffer::give_back(std::size_t offset, std::size_t size) noexcept {
  const std::size_t begin = page_ceil(offset), end = page_floor(offset + size);
  if (begin < end) ::madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

void Buffer::zero(std::size_t offset, std::size_t size) noexcept {
  const std::size_t begin = page_ceil(offset), end = page_floor(offset + size);
  if (begin >= end) {
    std::memset(data_ + offset, 0, size);
    return;
  }
  // A system that keeps the pages leaves them as they are.
  if (::madvise(data_ + begin, end - begin, MADV_DONTNEED) != 0) std::memset(data_ + begin, 0, end - begin);
  std::memset(data_ + offset, 0, begin - offset);
  std::memset(data_ + end, 0, offset + size - end);
}

}  // namespace kvtide
