// A process that is killed while it saves over a snapshot: whatever the moment, a whole file is there.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kvtide/error.h"
#include "state/snapshot.h"
#include "tests/base/killing_files.h"
#include "tests/base/time_limit.h"
#include "tests/formats/temporary_folder.h"
#include "tests/state/filled_state.h"

namespace kvtide {
namespace {

using testing::append;
using testing::seen;

int files_in(const std::string& folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// Saves in a child that is killed before or after its n-th call; false: the save needed fewer calls.
bool save_and_be_killed(const std::string& path, const KvState& state, std::int64_t call, bool after) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      testing::KillingFiles files(call, after);
      save_snapshot(files, path, state, {});
      ::_exit(0);
    } catch (const Error&) {
      ::_exit(1);
    }
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "the child could not save";
  return WIFSIGNALED(status);
}

TEST(SnapshotKill, AtEveryCallOfAnOverwritingSave_LeavesTheOldOrTheNewFile) {
  const testing::TimeLimit limit("children that are killed while they save");
  KvSpec spec = testing::small_spec(800, 512);
  KvState small(spec), large(spec);
  append(small, 300);
  append(large, 700);
  for (const bool after : {false, true})
    for (const bool grows : {false, true}) {
      const testing::TemporaryFolder folder;
      const std::string path = folder.path("state.kv");
      const KvState &from = grows ? small : large, &to = grows ? large : small;
      const std::string old_rows = grows ? "0-299" : "0-699", new_rows = grows ? "0-699" : "0-299";
      int old_found = 0, new_found = 0, left = 0;
      for (std::int64_t call = 1;; ++call) {
        PosixFiles files;
        save_snapshot(files, path, from, {});
        ASSERT_EQ(files_in(folder.path("")), 1) << "the save left what a killed one had left behind";
        if (!save_and_be_killed(path, to, call, after)) break;
        left += files_in(folder.path("")) - 1;
        Snapshot loaded = load_snapshot(files, path);  // a torn file throws
        const std::string rows = seen(loaded.state);
        ASSERT_TRUE(rows == old_rows || rows == new_rows) << "call " << call << ": " << rows;
        ++(rows == old_rows ? old_found : new_found);
      }
      EXPECT_GT(left, 8) << "kills should leave files that are half written";
      EXPECT_GT(old_found, 8);
      EXPECT_GT(new_found, 1);
    }
}

TEST(SnapshotKill, TemporaryFilesOfOthersStay) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("state.kv");
  KvState state(testing::small_spec(800, 512));
  append(state, 10);
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(gone, nullptr, 0), gone);
  const auto name = [](pid_t process) { return ".tmp" + std::to_string(process) + "-0"; };
  const std::string kept[] = {path + name(::getpid()) + "9",  // a process that lives
                              path + ".tmp", path + ".tmp" + std::to_string(gone), path + name(gone) + "x",
                              folder.path("another.kv") + name(gone)};
  for (const std::string& file : kept) std::ofstream(file) << "kept";
  std::ofstream(path + name(gone)) << "left behind";
  PosixFiles files;
  save_snapshot(files, path, state, {});
  for (const std::string& file : kept) EXPECT_TRUE(std::filesystem::exists(file)) << file;
  EXPECT_FALSE(std::filesystem::exists(path + name(gone)));

  // The number of a process that is gone here may be that of one that writes elsewhere.
  PosixFiles elsewhere;
  const int fd = elsewhere.open((path + name(gone)).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
  ASSERT_GE(fd, 0);
  save_snapshot(files, path, state, {});
  EXPECT_TRUE(std::filesystem::exists(path + name(gone)));
  elsewhere.close(fd);
  save_snapshot(files, path, state, {});
  EXPECT_FALSE(std::filesystem::exists(path + name(gone)));
}

}  // namespace
}  // namespace kvtide
