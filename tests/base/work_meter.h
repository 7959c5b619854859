// work_meter.h: counts what code does, so that a test of how much work something takes needs no clock.
//
// For programs with floors that were compiled once more by kvtide_counted() of tests/CMakeLists.txt: with a
// call at the start of every basic block, a stretch of code without a branch. Elsewhere nothing is counted.
#pragma once

#include <cstdint>

namespace kvtide {

struct Work {
  std::uint64_t blocks = 0;  // basic blocks that were executed
  std::uint64_t bytes = 0;   // that memcpy, memmove, memset, memcmp and memchr were asked for
};

// Of this thread since it started.
Work work_done();

}  // namespace kvtide
