// allocation_faults.h: the allocation of a given number, counted over all threads of the process, fails.
//
// The functions behind operator new, malloc and its relatives, mmap, mremap, madvise and pthread_create take
// the place of the system's wherever allocation_faults.cpp is linked, or preloaded. They also count what is
// alive, so that a test can tell what was not given back. What starting a thread needs is one allocation.
// Thread rules: arm and disarm from one thread; what is counted may happen on any.
#pragma once

#include <cstdint>

extern "C" {

enum allocation_kind {
  kvtide_operator_new = 1,
  kvtide_malloc = 2,  // calloc, realloc and aligned forms, too
  kvtide_mmap = 4,    // mremap, too
  kvtide_madvise = 8,
  kvtide_threads = 16,
  kvtide_all_kinds = 31,
};

struct allocation_totals {  // of what is alive
  std::int64_t blocks, mapped_bytes;
};

// From now on allocations of these kinds are counted from 1, and number `at` fails; from_then_on: all later
// ones, too. 0: none fails.
void kvtide_faults_arm(std::int64_t at, int from_then_on, unsigned kinds);
// Ends it, and gives how many were counted.
std::int64_t kvtide_faults_disarm(void);
// How many failed since the last arm.
std::int64_t kvtide_faults_hit(void);
allocation_totals kvtide_faults_alive(void);
}
