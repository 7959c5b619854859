// memory_reading.h: what the operating system says this process occupies, beside what the engine says it
// holds.
#pragma once

#include <cstdint>

namespace kvtide {

// What the program itself takes: code, libraries, stacks, the heap's small change. Weights, KV, scratch
// memory and this explain the RSS of a run within 5% (docs/cli.md, "Memory"; measured on the real models).
inline constexpr std::int64_t kRuntimeBytes = std::int64_t{15} << 19;

struct MemoryReading {         // bytes
  std::int64_t rss = 0;        // resident, shared pages included
  std::int64_t anonymous = 0;  // of these: not backed by a file
  std::int64_t peak = 0;       // largest rss so far
};

// From /proc/self/smaps_rollup and status; zeros where the system does not offer them.
MemoryReading read_memory();

// The resident set alone, cheap enough for a progress line.
std::int64_t quick_rss();

// Gives pages that the heap keeps for later back to the system, where it can: what is measured next should
// not carry what was measured before.
void give_back_heap();

}  // namespace kvtide
