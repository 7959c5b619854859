// resident.h: how much of a range of memory is in RAM, as the page table has it. For tests.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvtide {

// Bytes of the present pages of [start, start + size); nullopt where the system does not tell.
inline std::optional<std::size_t> resident_bytes(const void* start, std::size_t size) {
  const int fd = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  std::optional<std::size_t> resident = 0;
  for (std::uintptr_t page = address / kPage; page * kPage < address + size; ++page) {
    std::uint64_t entry = 0;
    if (::pread(fd, &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)) != sizeof entry) {
      resident = std::nullopt;
      break;
    }
    if ((entry & kPresent) != 0) *resident += kPage;
  }
  ::close(fd);
  return resident;
}

}  // namespace kvtide
