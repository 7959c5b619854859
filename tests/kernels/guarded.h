// guarded.h: numbers in memory that ends where no page is: whoever reads or writes one element too far dies.
//
// The first element begins right behind such a page as well when the size is a whole number of pages.
// Ownership: owns its mapping.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace kvtide::testing {

template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t count) : count_(count) {
    const std::size_t used = (count * sizeof(T) + kPage - 1) / kPage * kPage;
    size_ = used + 2 * kPage;
    void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for a test");
    memory_ = static_cast<char*>(memory);
    if (::mprotect(memory_, kPage, PROT_NONE) != 0 ||
        ::mprotect(memory_ + kPage + used, kPage, PROT_NONE) != 0)
      throw std::runtime_error("no guard page for a test");
    data_ = reinterpret_cast<T*>(memory_ + kPage + used - count * sizeof(T));
  }
  explicit Guarded(const std::vector<T>& values) : Guarded(values.size()) {
    if (!values.empty()) std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }
  ~Guarded() { ::munmap(memory_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() const { return data_; }
  std::span<const T> view() const { return {data_, count_}; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::size_t count_, size_ = 0;
  char* memory_ = nullptr;
  T* data_ = nullptr;
};

}  // namespace kvtide::testing
