// resident.h: how much of a mapping is in memory, as the operating system counts it. For tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace kvtide {

// Resident bytes of the mapping that starts at `address`. Neighbouring anonymous mappings may have been
// merged by the kernel, so the one that holds the address counts. SIZE_MAX when there is none.
inline std::size_t resident_bytes(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    const std::size_t dash = first.find('-');
    if (dash != std::string::npos) {
      inside = std::stoull(first.substr(0, dash), nullptr, 16) <= wanted &&
               wanted < std::stoull(first.substr(dash + 1), nullptr, 16);
    } else if (inside && first == "Rss:") {
      std::size_t kib = 0;
      words >> kib;
      return kib * 1024;
    }
  }
  return SIZE_MAX;
}

}  // namespace kvtide
