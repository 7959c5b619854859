// running.h: calls that give up the GIL, and how they end before the interpreter does.
//
// A thread that asks for the GIL while the interpreter is being torn down is killed where it stands, and
// being killed within C++ frames ends the process with a signal. So stop_all(), which runs at exit, asks
// every call to stop and waits a while for it; then it closes the gate: who still computes waits behind it
// for the end of the process, instead of asking for the GIL. Thread rules: Running under the GIL; the others
// as they say.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>

#include <utility>

namespace kvtide::python {

// Made before the GIL is given up, destroyed after it was taken back. Throws Misuse once the interpreter
// exits.
class Running {
 public:
  Running();
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const int process_;  // a forked child has none of the other threads that were counted
};

// True once running calls should end. From any thread.
bool stopping() noexcept;

// Without the GIL until the end of the scope.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

// With the GIL until the end of the scope; for callbacks of calls that gave it up.
class WithGil {
 public:
  WithGil();
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

[[noreturn]] void wait_for_the_end() noexcept;

// What `call`, which runs Python code, gives. A thread that is killed in the middle of it stays here.
template <class Call>
auto in_python(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const abi::__forced_unwind&) {
    wait_for_the_end();
  }
}

// Registers stop_all() with Python's atexit.
void bind_running(nanobind::module_& module);

}  // namespace kvtide::python
