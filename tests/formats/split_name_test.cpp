#include "formats/split_name.h"

#include <gtest/gtest.h>

namespace kvtide {
namespace {

TEST(SplitName, IsReadFromThePathOfAPart) {
  const auto name = SplitName::from_path("models/big-00002-of-00013.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->stem, "models/big");
  EXPECT_EQ(name->number, 2u);
  EXPECT_EQ(name->count, 13u);
}

TEST(SplitName, NamesTheOtherPartsBesideIt) {
  const auto name = SplitName::from_path("/m/x-00001-of-00003.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->sibling(3), "/m/x-00003-of-00003.gguf");
}

TEST(SplitName, KeepsDotsAndDashesOfTheStem) {
  const auto name = SplitName::from_path("../a-00001-of-00009.gguf-00001-of-00002.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->sibling(2), "../a-00001-of-00009.gguf-00002-of-00002.gguf");
}

TEST(SplitName, IsAbsentForEverythingElse) {
  for (const char* path : {"", "model.gguf", "-00001-of-00002", "x-1-of-2.gguf", "x-00001-of-0002.gguf",
                           "x-00001-of-00002.GGUF", "x-0000a-of-00002.gguf", "x-00001-of-0000 .gguf",
                           "x_00001-of-00002.gguf", "x-00001-of-00002.gguf.bak", "x--0001-of-00002.gguf",
                           "x-00003-of-00002.gguf", "x-00000-of-00002.gguf", "x-00000-of-00000.gguf"})
    EXPECT_FALSE(SplitName::from_path(path)) << path;
}

TEST(SplitName, PadsNumbersToFiveDigits) { EXPECT_EQ(SplitName::suffix(7, 65535), "-00007-of-65535.gguf"); }

}  // namespace
}  // namespace kvtide
