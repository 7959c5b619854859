// A process that is killed while it saves over a snapshot: whatever the moment, a whole file is there.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "kvtide/error.h"
#include "state/snapshot.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/samples.h"
#include "tests/state/filled_state.h"

namespace kvtide {
namespace {

using testing::append;
using testing::seen;

// What the child does until it is killed: save one state over the other, again and again.
[[noreturn]] void save_for_ever(const std::string& path, KvState& one, KvState& other, int ready) {
  try {
    PosixFiles files;
    for (;;) {
      save_snapshot(files, path, one, {});
      // The first save is done: from now on there is an old file to lose.
      if (ready >= 0 && ::write(ready, "x", 1) == 1) ready = -1;
      std::swap(one, other);
    }
  } catch (const Error&) {
    ::_exit(1);
  }
}

TEST(SnapshotKill, ThreeHundredKillsDuringOverwritingSaves_LeaveNoTornFile) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("state.kv");
  KvSpec spec = testing::small_spec(800, 512);
  KvState small(spec), large(spec);
  append(small, 300);
  append(large, 700);
  testing::Rng rng(9);
  int in_between = 0, small_found = 0, large_found = 0;
  for (int round = 0; round < 300; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(ready[0]);
      save_for_ever(path, small, large, ready[1]);
    }
    ::close(ready[1]);
    char byte = 0;
    const bool saved = ::read(ready[0], &byte, 1) == 1;
    std::this_thread::sleep_for(std::chrono::microseconds(rng.below(4000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ::close(ready[0]);
    ASSERT_TRUE(saved && WIFSIGNALED(status)) << "round " << round << ": the child could not save";

    PosixFiles files;
    Snapshot loaded = load_snapshot(files, path);  // a torn file throws
    const std::string rows = seen(loaded.state);
    ASSERT_TRUE(rows == "0-299" || rows == "0-699") << "round " << round << ": " << rows;
    ++(rows == "0-299" ? small_found : large_found);
    // What a killed process could not remove lies beside the file under a name of its own.
    for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
      if (entry.path() != path) {
        ++in_between;
        std::filesystem::remove(entry.path());
      }
  }
  EXPECT_GT(in_between, 30) << "the kills should hit saves that are under way";
  EXPECT_GT(small_found, 30);
  EXPECT_GT(large_found, 30);
}

}  // namespace
}  // namespace kvtide
