#include "running.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "misuse.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

// For calls that listen; a call that does not, or a callback that never returns, must not keep the process.
constexpr auto kPatience = std::chrono::seconds(3);

// One per process, like the interpreter whose end it watches.
struct Calls {
  std::atomic<int> count{0};
  std::atomic<bool> stop{false};
  std::atomic<bool> gate_closed{false};
  std::atomic<int> passing{0};           // threads that met an open gate and do not have the GIL yet
  std::atomic<std::thread::id> exiting;  // the thread that runs stop_all
  std::atomic<int> process{0};           // how many forks away from the process that imported the module
};

Calls& calls() {
  static Calls one;
  return one;
}

// Runs `take`, which takes the GIL, unless the interpreter is about to end.
template <class Take>
void pass_gate(Take take) noexcept {
  Calls& c = calls();
  ++c.passing;
  if (c.gate_closed && std::this_thread::get_id() != c.exiting) {
    --c.passing;
    wait_for_the_end();
  }
  take();
  --c.passing;
}

void stop_all() {
  Calls& c = calls();
  c.exiting = std::this_thread::get_id();
  c.stop = true;
  const WithoutGil others_may_finish;
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (c.count > 0 && std::chrono::steady_clock::now() < give_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  c.gate_closed = true;
  while (c.passing > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Only the thread that forked is there, and it has the GIL.
void after_fork_in_child() {
  Calls& c = calls();
  ++c.process;
  c.count = 0;
  c.passing = 0;
}

}  // namespace

void wait_for_the_end() noexcept {
  for (;;) ::pause();
}

Running::Running() : process_(calls().process) {
  Calls& c = calls();
  if (c.stop && std::this_thread::get_id() != c.exiting)
    throw Misuse("cancelled", "the interpreter is exiting; nothing new is started");
  ++c.count;
}

Running::~Running() {
  Calls& c = calls();
  if (c.process == process_) --c.count;
}

WithoutGil::~WithoutGil() {
  pass_gate([&]() noexcept { PyEval_RestoreThread(thread_); });
}

WithGil::WithGil() {
  pass_gate([&]() noexcept { state_ = PyGILState_Ensure(); });
}

bool stopping() noexcept { return calls().stop; }

void bind_running(nb::module_&) {
  calls();
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&stop_all));
  nb::module_ os = nb::module_::import_("os");
  if (nb::hasattr(os, "register_at_fork"))
    os.attr("register_at_fork")(nb::arg("after_in_child") = nb::cpp_function(&after_fork_in_child));
}

}  // namespace kvtide::python
