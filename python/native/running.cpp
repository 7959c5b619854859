#include "running.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "misuse.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

// A callback that never returns must not keep the process for ever.
constexpr auto kPatience = std::chrono::seconds(30);

// One per process, like the interpreter whose end it watches.
struct Calls {
  std::atomic<int> count{0};
  std::atomic<bool> stop{false};
  std::thread::id exiting;           // the thread that runs stop_all
  const pid_t process = ::getpid();  // a forked child has none of the threads that were counted
};

Calls& calls() {
  static Calls one;
  return one;
}

void stop_all() {
  Calls& c = calls();
  c.exiting = std::this_thread::get_id();
  c.stop = true;
  if (::getpid() != c.process) return;
  const nb::gil_scoped_release others_may_finish;
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (c.count > 0 && std::chrono::steady_clock::now() < give_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

Running::Running() {
  Calls& c = calls();
  if (c.stop && std::this_thread::get_id() != c.exiting)
    throw Misuse("cancelled", "the interpreter is exiting; nothing new is started");
  ++c.count;
}

Running::~Running() { --calls().count; }

bool stopping() noexcept { return calls().stop; }

void bind_running(nb::module_&) {
  calls();
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&stop_all));
}

}  // namespace kvtide::python
