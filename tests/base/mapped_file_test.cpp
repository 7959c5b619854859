#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kvtide/error.h"
#include "tests/base/resident.h"

namespace kvtide {
namespace {

// A folder of its own per test, removed afterwards.
class MappedFileTest : public testing::TestWithParam<MappedFile::Mode> {
 protected:
  MappedFileTest() {
    std::string name = (std::filesystem::temp_directory_path() / "kvtide-test-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~MappedFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  // Opens what cannot be opened; gives the code and checks that the message names the file.
  static ErrorCode code_of_opening(const std::string& file, std::string_view reason) {
    try {
      const MappedFile mapped(file, GetParam());
      ADD_FAILURE() << file << " opened with " << mapped.bytes().size() << " bytes";
      return ErrorCode::cancelled;
    } catch (const Error& error) {
      EXPECT_EQ(error.message().rfind(file + ": ", 0), 0u) << error.message();
      EXPECT_NE(error.message().find(reason), std::string::npos) << error.message();
      return error.code();
    }
  }

  std::filesystem::path folder_;
};

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_P(MappedFileTest, HoldsTheBytesOfTheFile) {
  const std::string file = write("plain", std::string_view("GGUF\0\x03", 6));
  const MappedFile mapped(file, GetParam());
  EXPECT_EQ(text_of(mapped), std::string_view("GGUF\0\x03", 6));
  EXPECT_EQ(mapped.path(), file);
}

TEST_P(MappedFileTest, HoldsAFileLargerThanOneReadOrOnePage) {
  std::string bytes(3 * 4096 + 17, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 % 251);
  const MappedFile mapped(write("large", bytes), GetParam());
  EXPECT_TRUE(text_of(mapped) == bytes);
}

TEST_P(MappedFileTest, StaysValidAfterTheFileIsRemoved) {
  const std::string file = write("gone", "still here");
  const MappedFile mapped(file, GetParam());
  ASSERT_TRUE(std::filesystem::remove(file));
  EXPECT_EQ(text_of(mapped), "still here");
}

TEST_P(MappedFileTest, RefusesAMissingFile) {
  EXPECT_EQ(code_of_opening(path("missing"), "No such file"), ErrorCode::not_found);
  EXPECT_EQ(code_of_opening(write("plain", "x") + "/below", "Not a directory"), ErrorCode::not_found);
}

TEST_P(MappedFileTest, RefusesADirectory) {
  EXPECT_EQ(code_of_opening(folder_.string(), "is a directory"), ErrorCode::bad_format);
}

TEST_P(MappedFileTest, RefusesAnEmptyFile) {
  EXPECT_EQ(code_of_opening(write("empty", ""), "empty"), ErrorCode::bad_format);
}

TEST_P(MappedFileTest, RefusesAFifoWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(code_of_opening(path("fifo"), "not a regular file"), ErrorCode::bad_format);
}

TEST_P(MappedFileTest, RefusesADevice) {
  EXPECT_EQ(code_of_opening("/dev/zero", "not a regular file"), ErrorCode::bad_format);
}

TEST_P(MappedFileTest, RefusesAnUnreadableFile) {
  const std::string file = write("secret", "x");
  ASSERT_EQ(::chmod(file.c_str(), 0), 0);
  const uid_t user = ::geteuid();
  // Root may read everything, so root looks at it as somebody else.
  if (user == 0 && ::seteuid(65534) != 0) GTEST_SKIP() << "root cannot become another user here";
  const ErrorCode code = code_of_opening(file, "Permission denied");
  ASSERT_EQ(::seteuid(user), 0);
  EXPECT_EQ(code, ErrorCode::not_found);
}

TEST_P(MappedFileTest, MovesWithItsBytes_LeavingTheSourceEmpty) {
  MappedFile first(write("moved", "moved bytes"), GetParam());
  MappedFile second(std::move(first));
  EXPECT_EQ(text_of(second), "moved bytes");
  EXPECT_TRUE(first.bytes().empty());  // NOLINT: the moved-from state is specified
  MappedFile third;
  EXPECT_TRUE(third.bytes().empty());
  third = std::move(second);
  EXPECT_EQ(text_of(third), "moved bytes");
}

TEST_P(MappedFileTest, ReleaseChangesNoByte) {
  const std::string bytes(std::size_t{1} << 20, 'r');
  const MappedFile mapped(write("released", bytes), GetParam());
  mapped.release(0, bytes.size());
  mapped.release(5, 3);
  mapped.release(bytes.size() - 4096, 4096);
  EXPECT_TRUE(text_of(mapped) == bytes);
}

INSTANTIATE_TEST_SUITE_P(Modes, MappedFileTest,
                         testing::Values(MappedFile::Mode::map, MappedFile::Mode::copy),
                         [](const auto& mode) {
                           return mode.param == MappedFile::Mode::map ? "Map" : "Copy";
                         });

class MappedFileMemory : public MappedFileTest {};

TEST_P(MappedFileMemory, ReleasedPagesOfAMappedFileLeaveTheResidentSet_AndComeBackOnUse) {
  const std::size_t size = std::size_t{4} << 20;
  const MappedFile mapped(write("large", std::string(size, 'm')), GetParam());
  ASSERT_TRUE(text_of(mapped) == std::string(size, 'm'));  // touches every page
  ASSERT_EQ(resident_bytes(mapped.bytes().data(), size), size);
  mapped.release(0, size);
  EXPECT_EQ(resident_bytes(mapped.bytes().data(), size), 0u);
  EXPECT_EQ(mapped.bytes()[size / 2], std::byte{'m'});
}

INSTANTIATE_TEST_SUITE_P(Map, MappedFileMemory, testing::Values(MappedFile::Mode::map));

class MappedFileCopy : public MappedFileTest {};

TEST_P(MappedFileCopy, ACopiedFileDoesNotChangeWhenTheFileIsShortenedOrOverwritten) {
  const std::string file = write("changing", std::string(10000, 'a'));
  const MappedFile copied(file, GetParam());
  std::filesystem::resize_file(file, 1);
  std::ofstream(file, std::ios::binary) << "b";
  EXPECT_TRUE(text_of(copied) == std::string(10000, 'a'));
}

INSTANTIATE_TEST_SUITE_P(Copy, MappedFileCopy, testing::Values(MappedFile::Mode::copy));

}  // namespace
}  // namespace kvtide
