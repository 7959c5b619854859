// running.h: which calls have given up the GIL, and how they end before the interpreter does.
//
// A thread that asks for the GIL while the interpreter is being torn down is killed where it stands, and
// being killed within C++ frames ends the process with a signal. So stop_all(), which runs at exit, asks
// every call to stop and waits for it; from then on other threads than the one that exits are refused. Thread
// rules: all of it under the GIL, apart from stopping().
#pragma once

#include <nanobind/nanobind.h>

namespace kvtide::python {

// Made before the GIL is given up, destroyed after it was taken back. Throws Misuse once the interpreter
// exits.
class Running {
 public:
  Running();
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

// True once running calls should end.
bool stopping() noexcept;

// Registers stop_all() with Python's atexit.
void bind_running(nanobind::module_& module);

}  // namespace kvtide::python
