#include "cli/commands/interrupt.h"

#include <poll.h>
#include <signal.h>

#include <atomic>
#include <cerrno>

#include "kvtide/error.h"

namespace kvtide {
namespace {

std::atomic<bool> asked_to_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // or a signal handler could not touch it

extern "C" void on_interrupt(int) { asked_to_stop.store(true, std::memory_order_relaxed); }

void listen() {
  struct sigaction action {};
  action.sa_handler = &on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the next one finds the default action
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void install_interrupt_handler() {
  listen();
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr);
  ::sigaction(SIGXFSZ, &ignore, nullptr);
}

bool interrupted() noexcept { return asked_to_stop.load(std::memory_order_relaxed); }

void forget_interrupt() noexcept {
  asked_to_stop.store(false, std::memory_order_relaxed);
  listen();
}

void wait_for_input(int descriptor) noexcept {
  constexpr int kLookAgain = 100;  // milliseconds
  pollfd input{descriptor, POLLIN, 0};
  while (!interrupted()) {
    const int ready = ::poll(&input, 1, kLookAgain);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return;
  }
}

void stop_if_interrupted(const char* what) {
  if (interrupted()) throw Error(ErrorCode::cancelled, what);
}

}  // namespace kvtide
