#include "cli/output/memory_reading.h"

#include <unistd.h>

#include <fstream>
#include <string>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace kvtide {
namespace {

// The kB figure behind `label` in a file of /proc, as bytes.
std::int64_t figure(const char* path, const std::string& label) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(label)) continue;
    try {
      return std::stoll(line.substr(label.size())) * 1024;
    } catch (const std::exception&) {
      return 0;
    }
  }
  return 0;
}

}  // namespace

MemoryReading read_memory() {
  constexpr const char* kRollup = "/proc/self/smaps_rollup";
  return {figure(kRollup, "Rss:"), figure(kRollup, "Anonymous:"), figure("/proc/self/status", "VmHWM:")};
}

std::int64_t quick_rss() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return 0;
  return resident * ::sysconf(_SC_PAGESIZE);
}

void give_back_heap() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace kvtide
