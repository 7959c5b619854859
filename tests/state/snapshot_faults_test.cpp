// Snapshots and a file system that fails: whatever call fails and however, a reader finds the old file or the
// new one, a load is whole or refused, and nothing is left open or lying about.
#include <gtest/gtest.h>

#include <utility>

#include "kvtide/error.h"
#include "state/snapshot.h"
#include "tests/base/faulty_files.h"
#include "tests/base/memory_files.h"
#include "tests/state/filled_state.h"

namespace kvtide {
namespace {

using testing::append;
using testing::Fault;
using testing::FaultyFiles;
using testing::MemoryFiles;
using testing::seen;
using testing::small_spec;

KvState read_state(std::int64_t tokens) {
  KvState state(small_spec());
  append(state, tokens);
  return state;
}

std::string rows_of(FileSystem& files, const std::string& path) {
  Snapshot loaded = load_snapshot(files, path);
  return seen(loaded.state);
}

// A disk on which there is no more room: names can still be changed and removed.
class FullDisk : public FaultyFiles {
 public:
  FullDisk(FileSystem& real, std::int64_t room) : FaultyFiles(real, {}), room_(room) {}
  std::int64_t write(int fd, const void* data, std::size_t size) override {
    const auto fits = std::min(size, static_cast<std::size_t>(room_));
    if (fits == 0 && size > 0) {
      errno = ENOSPC;
      return -1;
    }
    room_ -= static_cast<std::int64_t>(fits);
    return FaultyFiles::write(fd, data, fits);
  }

 private:
  std::int64_t room_;
};

struct Kind {
  const char* name;
  int error;  // 0: a call that does one byte of the work
  bool from_then_on;
};
constexpr Kind kKinds[] = {
    {"EIO", EIO, false},     {"EIO from then on", EIO, true},       {"ENOSPC", ENOSPC, false},
    {"EINTR", EINTR, false}, {"ENOSPC from then on", ENOSPC, true}, {"one byte", 0, false},
    {"bytes", 0, true},
};

TEST(SnapshotFaults, ASave_WithAnyOfItsCallsFailing_LeavesTheOldFileOrTheNewOne) {
  const KvState old_state = read_state(30), new_state = read_state(40);
  for (const Kind& kind : kKinds) {
    int completed = 0;
    for (std::int64_t at = 1; completed == 0; ++at) {
      SCOPED_TRACE(cat(kind.name, " at call ", at));
      ASSERT_LT(at, 1000);
      MemoryFiles memory;
      KvState before = old_state.fork(), after = new_state.fork();
      save_snapshot(memory, "a", before, {});
      FaultyFiles files(memory, {at, kind.error, kind.from_then_on});
      bool failed = false;
      try {
        save_snapshot(files, "a", after, {});
      } catch (const Error& error) {
        failed = true;
        EXPECT_EQ(error.code(), ErrorCode::io);
        EXPECT_TRUE(error.message().starts_with("a: cannot ")) << error.message();
      }
      const std::string rows = rows_of(memory, "a");
      EXPECT_TRUE(rows == "0-39" || (failed && rows == "0-29")) << rows;
      EXPECT_EQ(seen(after), "0-39") << "the live state";
      EXPECT_EQ(memory.open_files(), 0u);
      // A file system that refuses every call also refuses to remove the temporary file.
      if (!kind.from_then_on || !failed) {
        EXPECT_EQ(memory.names.size(), 1u);
      }
      if (kind.error == 0) {
        EXPECT_FALSE(failed) << "short writes are no failure";
      }
      if (!files.happened()) {
        EXPECT_FALSE(failed);
        ++completed;
      }
      if (kind.error == 0 && kind.from_then_on) break;  // every call from the first on was short
    }
  }
}

TEST(SnapshotFaults, ASave_OnADiskThatFillsUpAtAnyByte_LeavesTheOldFileAndNothingElse) {
  KvState before = read_state(3), after = read_state(5);
  MemoryFiles memory;
  save_snapshot(memory, "a", before, {});
  save_snapshot(memory, "whole", after, {});
  const auto size = static_cast<std::int64_t>(memory.get("whole").size());
  for (std::int64_t room = 0; room < size; ++room) {
    FullDisk disk(memory, room);
    try {
      save_snapshot(disk, "a", after, {});
      FAIL() << size << " bytes fitted into " << room;
    } catch (const Error& error) {
      ASSERT_EQ(error.message(), "a: cannot write: No space left on device");
    }
    ASSERT_EQ(memory.names.size(), 2u);
    ASSERT_EQ(memory.open_files(), 0u);
  }
  EXPECT_EQ(rows_of(memory, "a"), "0-2");
  FullDisk disk(memory, size);
  save_snapshot(disk, "a", after, {});
  EXPECT_EQ(memory.get("a"), memory.get("whole"));
}

TEST(SnapshotFaults, ALoad_WithAnyOfItsCallsFailing_IsWholeOrRefused) {
  KvState state = read_state(40);
  MemoryFiles memory;
  SnapshotExtras extras;
  extras.tokens.assign(40, 7);
  extras.logits = {1.0f, 2.0f};
  save_snapshot(memory, "a", state, extras);
  const auto bytes = memory.get("a");
  for (const Kind& kind : kKinds)
    for (std::int64_t at = 1;; ++at) {
      SCOPED_TRACE(cat(kind.name, " at call ", at));
      ASSERT_LT(at, 1000);
      FaultyFiles files(memory, {at, kind.error, kind.from_then_on});
      bool failed = false;
      try {
        Snapshot loaded = load_snapshot(files, "a");
        EXPECT_EQ(seen(loaded.state), "0-39");
        EXPECT_EQ(loaded.extras.tokens, extras.tokens);
        EXPECT_EQ(loaded.extras.logits, extras.logits);
      } catch (const Error& error) {
        failed = true;
        EXPECT_TRUE(error.code() == ErrorCode::io || error.code() == ErrorCode::not_found);
        EXPECT_TRUE(error.message().starts_with("a: cannot ")) << error.message();
      }
      EXPECT_EQ(memory.open_files(), 0u);
      EXPECT_EQ(memory.get("a"), bytes);
      if (kind.error == 0) {
        EXPECT_FALSE(failed) << "short reads are no failure";
      }
      if (!files.happened()) {
        EXPECT_FALSE(failed);
        break;
      }
      if (kind.error == 0 && kind.from_then_on) break;
    }
}

}  // namespace
}  // namespace kvtide
