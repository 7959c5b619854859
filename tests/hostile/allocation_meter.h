// allocation_meter.h: how many bytes of heap are live, and the most that were at once. For this test program
// only.
//
// It replaces operator new and delete of the whole program (allocation_meter.cpp). Memory still comes from
// malloc, so that the sanitizers keep watching over it. Thread rules: counters are atomic.
#pragma once

#include <cstddef>

namespace kvtide::testing {

class AllocationMeter {
 public:
  AllocationMeter();         // starts a new peak at what is live now
  std::size_t peak() const;  // most bytes live at once since then, beyond those at the start

 private:
  std::size_t at_start_;
};

}  // namespace kvtide::testing
