#include "base/new_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kvtide/error.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

namespace fs = std::filesystem;

TEST(NewFolder, TakesItsNameWhenItIsPutInPlace) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("out");
  NewFolder made(path, "files");
  std::ofstream(made.path() + "/one") << "1";
  EXPECT_FALSE(fs::exists(path));
  made.put_in_place();
  EXPECT_TRUE(fs::exists(path + "/one"));
}

TEST(NewFolder, IsGoneWithAllThatIsInItWhenItWasNotPutInPlace) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("out");
  {
    const NewFolder made(path, "files");
    std::ofstream(made.path() + "/one") << "1";
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(path + ".incomplete"));
}

TEST(NewFolder, AFolderThatHoldsSomethingIsRefusedAndStays) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("out");
  fs::create_directory(path);
  NewFolder(path, "files").put_in_place();  // empty: it is taken
  std::ofstream(path + "/one") << "1";
  try {
    NewFolder again(path + "/", "files");
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.message(), path + ": is there already; files go into a new or empty folder");
  }
  EXPECT_TRUE(fs::exists(path + "/one"));
}

}  // namespace
}  // namespace kvtide
