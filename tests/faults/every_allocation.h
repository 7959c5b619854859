// every_allocation.h: an operation in which every allocation fails once, and in which all fail from each on.
//
// After each fault: the outcome is a result or Error(out_of_memory); what must not change has not; the
// operation made again, undisturbed, ends where an undisturbed one ends; and nothing is left over: memory,
// mappings, descriptors. A trial that waits for longer than a minute ends the program and says for what.
//
// make test runs a part of the numbers: a step and a start that share no factor with those of other trials.
// With KVTIDE_EVERY_ALLOCATION=1 (make test-allocations) every number is run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace kvtide::testing {

// One world after another is made, used and destroyed: what it holds is whatever the functions share.
struct Trial {
  std::string name;
  std::function<void()> make = [] {};  // before
  std::function<void()> run;           // allocations fail in here; made again after a fault
  std::function<std::string()> look = [] { return std::string(); };  // what a failed run must leave alone
  std::function<std::string()> end = [] { return std::string(); };   // what every run must come to
  std::function<void()> destroy = [] {};
  std::int64_t trials = 40;  // of each mode, about, where not every number is run
  bool once_only = false;    // what is left alone only by an operation that can clean up behind itself
};

void fail_every_allocation(const Trial& trial);

}  // namespace kvtide::testing
