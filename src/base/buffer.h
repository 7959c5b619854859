// buffer.h: memory straight from the operating system: page aligned, zero filled, committed by first touch.
//
// Ownership: owns its pages; movable, not copyable. RAM is used only for pages that were written (or read
// through); give_back returns pages, which read as zeros afterwards.
// Thread rules: as for a plain array.
#pragma once

#include <cstddef>
#include <span>

namespace kvtide {

class Buffer {
 public:
  // small: never 2 MiB pages, for memory that is used in scattered pieces; large: such pages where the system
  // has them, and the address is a multiple of 2 MiB.
  enum class Pages { any, small, large };

  Buffer() = default;
  // Reserves `size` bytes of address space. Throws Error(out_of_memory).
  explicit Buffer(std::size_t size, Pages pages = Pages::any);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

  // Returns the pages wholly inside [offset, offset + size) to the operating system; they read as zeros
  // afterwards.
  void give_back(std::size_t offset, std::size_t size) noexcept;
  // Makes [offset, offset + size) read as zeros: whole pages are given back, the edges written.
  void zero(std::size_t offset, std::size_t size) noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kvtide
