#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "kvtide/error.h"
#include "tests/base/faulty_files.h"
#include "tests/base/memory_files.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

using testing::Fault;
using testing::FaultyFiles;
using testing::MemoryFiles;

std::span<const std::byte> bytes_written(std::string_view text) { return std::as_bytes(std::span(text)); }

void save(FileSystem& files, const std::string& path, std::initializer_list<std::string_view> parts) {
  std::vector<std::span<const std::byte>> pieces;
  for (const auto part : parts) pieces.push_back(bytes_written(part));
  save_file(files, path, pieces);
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string contents(const MemoryFiles& files, const std::string& name) {
  const auto& bytes = files.get(name);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(SaveFile, WritesItsPiecesOneAfterAnother_AndLeavesNothingBesideThem) {
  const testing::TemporaryFolder folder;
  PosixFiles files;
  save(files, folder.path("a"), {"one ", "", "two"});
  EXPECT_EQ(contents(folder.path("a")), "one two");
  save(files, folder.path("a"), {"three"});
  EXPECT_EQ(contents(folder.path("a")), "three");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("")), {}), 1);
  struct stat info {};
  ASSERT_EQ(::stat(folder.path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "what was read is nobody else's business";
}

TEST(SaveFile, RefusesAFolderThatDoesNotExist_AndAFileThatIsAFolder) {
  const testing::TemporaryFolder folder;
  PosixFiles files;
  for (const std::string& path : {folder.path("missing/a"), folder.path(".")}) {
    try {
      save(files, path, {"x"});
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_TRUE(error.message().starts_with(path)) << error.message();
    }
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("")), {}), 0);
}

TEST(SaveFile, PassesByATemporaryFileThatSomebodyLeft) {
  const testing::TemporaryFolder folder;
  PosixFiles files;
  for (int i = 0; i < 3; ++i)
    std::ofstream(folder.path("a.tmp" + std::to_string(::getpid()) + "-" + std::to_string(i)))
        << "left behind";
  save(files, folder.path("a"), {"new"});
  EXPECT_EQ(contents(folder.path("a")), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("")), {}), 4);
}

TEST(SaveFile, WithAnyCallFailing_LeavesTheOldFileOrTheNewOne) {
  for (const int error : {EIO, ENOSPC, EINTR, 0})
    for (const bool from_then_on : {false, true})
      for (std::int64_t at = 1;; ++at) {
        MemoryFiles memory;
        save(memory, "folder/a", {"the old text"});
        FaultyFiles files(memory, {at, error, from_then_on});
        bool failed = false;
        // An interrupted or short call is tried again; that cannot go on for ever.
        if (error == EINTR && from_then_on) break;
        try {
          save(files, "folder/a", {"a text ", "that is new"});
        } catch (const Error& caught) {
          failed = true;
          EXPECT_EQ(caught.code(), ErrorCode::io);
          EXPECT_TRUE(caught.message().starts_with("folder/a: cannot ")) << caught.message();
        }
        const std::string after = contents(memory, "folder/a");
        EXPECT_TRUE(after == "a text that is new" || (failed && after == "the old text"))
            << "call " << at << " error " << error << ": " << after;
        EXPECT_EQ(memory.open_files(), 0u) << "call " << at << " error " << error;
        if (!from_then_on || error == 0) {
          EXPECT_EQ(memory.names.size(), 1u) << "call " << at << " error " << error;
        }
        if (!files.happened()) {
          EXPECT_FALSE(failed);
          EXPECT_GE(at, 8) << "create, write, flush, close, rename, and the folder's flush";
          break;
        }
      }
}

TEST(FileReader, WithAnyCallFailing_GivesTheWholeFileOrATypedError) {
  MemoryFiles memory;
  save(memory, "a", {"some text to read"});
  for (const int error : {EIO, EINTR, 0})
    for (const bool from_then_on : {false, true})
      for (std::int64_t at = 1;; ++at) {
        if (error == EINTR && from_then_on) break;
        FaultyFiles files(memory, {at, error, from_then_on});
        std::string text(17, ' ');
        try {
          FileReader reader(files, "a");
          reader.read(std::as_writable_bytes(std::span(text)));
          EXPECT_EQ(text, "some text to read") << at;
        } catch (const Error& caught) {
          EXPECT_TRUE(caught.message().starts_with("a: cannot ")) << caught.message();
        }
        EXPECT_EQ(memory.open_files(), 0u) << at;
        if (!files.happened()) break;
      }
}

TEST(FileReader, SaysWhatItCannotRead) {
  const testing::TemporaryFolder folder;
  PosixFiles files;
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  const auto refused = [&](const std::string& name, ErrorCode code, const std::string& says) {
    try {
      FileReader reader(files, folder.path(name));
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_EQ(error.message(), folder.path(name) + ": " + says);
    }
  };
  refused("missing", ErrorCode::not_found, "cannot open: No such file or directory");
  refused("pipe", ErrorCode::bad_format, "is not a regular file");
  refused("", ErrorCode::bad_format, "is not a regular file");
}

TEST(FileReader, NoticesAFileThatBecameShorter) {
  const testing::TemporaryFolder folder;
  PosixFiles files;
  save(files, folder.path("a"), {"0123456789"});
  FileReader reader(files, folder.path("a"));
  EXPECT_EQ(reader.size(), 10u);
  std::filesystem::resize_file(folder.path("a"), 4);
  std::string text(10, ' ');
  try {
    reader.read(std::as_writable_bytes(std::span(text)));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_EQ(error.message(), folder.path("a") + ": the file became shorter while it was read");
  }
}

}  // namespace
}  // namespace kvtide
