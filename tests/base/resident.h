// resident.h: how much of a range of memory is in RAM, as the page table has it. For tests.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kvtide {

// Bytes of the present pages of [start, start + size); nullopt where the system does not tell.
inline std::optional<std::size_t> resident_bytes(const void* start, std::size_t size) {
  const int fd = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  std::optional<std::size_t> resident = 0;
  const std::uintptr_t end = (address + size + kPage - 1) / kPage;
  std::vector<std::uint64_t> entries(4096);
  for (std::uintptr_t page = address / kPage; page < end;) {
    const std::size_t count = std::min<std::size_t>(entries.size(), end - page);
    const auto bytes = static_cast<ssize_t>(count * sizeof(std::uint64_t));
    if (::pread(fd, entries.data(), static_cast<std::size_t>(bytes),
                static_cast<off_t>(page * sizeof(std::uint64_t))) != bytes) {
      resident = std::nullopt;
      break;
    }
    for (std::size_t i = 0; i < count; ++i)
      if ((entries[i] & kPresent) != 0) *resident += kPage;
    page += count;
  }
  ::close(fd);
  return resident;
}

}  // namespace kvtide
