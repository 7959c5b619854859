#include "tests/faults/every_allocation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kvtide/error.h"
#include "tests/faults/allocation_faults.h"

namespace kvtide::testing {
namespace {

constexpr unsigned kPatience = 60;  // seconds

char waited_for[256];

extern "C" void give_up(int) {
  const char text[] = "\nThis waits for ever: ";
  (void)!::write(STDERR_FILENO, text, sizeof text - 1);
  (void)!::write(STDERR_FILENO, waited_for, std::strlen(waited_for));
  (void)!::write(STDERR_FILENO, "\n", 1);
  ::_exit(1);
}

struct LeftOver {
  allocation_totals alive = kvtide_faults_alive();
  int next_descriptor = lowest_free();

  static int lowest_free() {
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(fd);
    return fd;
  }
  std::string text() const {
    return std::to_string(alive.blocks) + " blocks, " + std::to_string(alive.mapped_bytes) +
           " bytes mapped, descriptor " + std::to_string(next_descriptor);
  }
};

struct Outcome {
  bool threw = false, wrong = false;
  char what[160] = "";
  std::int64_t counted = 0, hit = 0;
};

// Nothing in here may allocate but the operation.
Outcome attempt(const std::function<void()>& run, std::int64_t at, bool from_then_on) {
  Outcome outcome;
  const auto is_wrong = [&](const char* kind, const char* what) {
    outcome.wrong = true;
    std::snprintf(outcome.what, sizeof outcome.what, "%s: %s", kind, what);
  };
  kvtide_faults_arm(at, from_then_on ? 1 : 0, kvtide_all_kinds);
  try {
    run();
  } catch (const Error& error) {
    outcome.threw = true;
    std::snprintf(outcome.what, sizeof outcome.what, "%s", error.what());
    if (error.code() != ErrorCode::out_of_memory) is_wrong(error_code_name(error.code()), error.what());
    if (error.what()[0] == '\0') is_wrong("Error", "without a message");
  } catch (const std::exception& error) {
    outcome.threw = true;
    is_wrong("an exception of the standard library", error.what());
  } catch (...) {
    outcome.threw = true;
    is_wrong("an exception", "of an unknown type");
  }
  outcome.counted = kvtide_faults_disarm();
  outcome.hit = kvtide_faults_hit();
  return outcome;
}

// Primes: trials that have a path in common meet different numbers of it.
std::int64_t step_of(std::int64_t count, std::int64_t trials) {
  static constexpr std::int64_t kPrimes[] = {1,   2,   3,   5,   7,   11,  13,  17,  19,  23,  29,   37,
                                             43,  53,  61,  71,  83,  97,  113, 131, 151, 173, 199,  229,
                                             263, 307, 353, 409, 467, 541, 619, 709, 821, 941, 1087, 1249};
  if (std::getenv("KVTIDE_EVERY_ALLOCATION") != nullptr) return 1;
  for (const std::int64_t prime : kPrimes)
    if (count / prime <= trials) return prime;
  return count / trials;
}

void note_wait(const Trial& trial, std::int64_t at, bool from_then_on) {
  std::snprintf(waited_for, sizeof waited_for, "%s, allocation %lld%s", trial.name.c_str(),
                static_cast<long long>(at), from_then_on ? " and all later ones" : "");
}

// One world in which a fault happens.
Outcome suffer(const Trial& trial, std::int64_t at, bool from_then_on, const std::string& wanted) {
  trial.make();
  const std::string was = trial.look();
  const Outcome outcome = attempt(trial.run, at, from_then_on);
  const std::string context = std::string(waited_for) + ": " + outcome.what;
  EXPECT_FALSE(outcome.wrong) << context;
  if (outcome.threw) {
    EXPECT_EQ(trial.look(), was) << context;
    const Outcome again = attempt(trial.run, 0, false);
    EXPECT_FALSE(again.threw) << context << "; made again: " << again.what;
  }
  EXPECT_EQ(trial.end(), wanted) << context << (outcome.threw ? "" : "(it gave a result)");
  trial.destroy();
  return outcome;
}

}  // namespace

void fail_every_allocation(const Trial& trial) {
  std::signal(SIGALRM, give_up);
  // Twice: what is kept for the life of the process is there, and how many allocations there are is known.
  std::string wanted;
  std::int64_t count = 0;
  for (int i = 0; i < 2; ++i) {
    trial.make();
    const Outcome calm = attempt(trial.run, 0, false);
    ASSERT_FALSE(calm.threw) << trial.name << ", undisturbed: " << calm.what;
    count = calm.counted;
    wanted = trial.end();
    trial.destroy();
  }
  const std::int64_t step = step_of(count, trial.trials);
  std::int64_t results = 0, errors = 0;
  for (const bool from_then_on : {false, true}) {
    if (from_then_on && trial.once_only) continue;
    for (std::int64_t at = from_then_on ? 1 + step / 2 : 1;; at += step) {
      note_wait(trial, at, from_then_on);
      const LeftOver before;
      ::alarm(kPatience);
      const Outcome outcome = suffer(trial, at, from_then_on, wanted);
      ::alarm(0);
      const LeftOver after;
      ++(outcome.threw ? errors : results);
      ASSERT_EQ(after.text(), before.text()) << waited_for << ": left over, after: " << outcome.what;
      if (::testing::Test::HasFailure()) return;
      if (outcome.hit == 0) break;
    }
  }
  EXPECT_EQ(errors > 0, count > 0) << trial.name << ": no fault was felt, of " << results;
  std::printf("  %-44s %6lld allocations, every %lld: %lld errors, %lld results\n", trial.name.c_str(),
              static_cast<long long>(count), static_cast<long long>(step), static_cast<long long>(errors),
              static_cast<long long>(results));
}

}  // namespace kvtide::testing
