#include "text/unicode.h"

#include <gtest/gtest.h>

namespace kvtide {
namespace {

TEST(Unicode, AsciiWithoutASearchIsWhatTheTableSays) {
  for (char32_t c = 0; c < 128; ++c) EXPECT_EQ(char_class(c), char_class_by_table(c)) << int(c);
}

TEST(Unicode, TheTableIsSortedAndStartsAtZero) {
  EXPECT_EQ(kClassChanges[0] >> 8, 0u);
  for (std::size_t i = 1; i < kClassChangeCount; ++i)
    EXPECT_LT(kClassChanges[i - 1] >> 8, kClassChanges[i] >> 8);
}

// A linear walk over the table, against the search by page.
TEST(Unicode, TheSearchFindsTheEntryThatHolds_AtEveryCodePoint) {
  std::size_t entry = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    while (entry + 1 < kClassChangeCount && kClassChanges[entry + 1] >> 8 <= c) ++entry;
    ASSERT_EQ(char_class(c), kClassChanges[entry] & 0xff) << std::hex << int(c);
  }
}

TEST(Unicode, KnowsTheClassesOfCharactersFromManyScripts) {
  EXPECT_EQ(char_class(U'\u0436'), kLetter);
  EXPECT_EQ(char_class(U'\u4e2d'), kLetter);
  EXPECT_EQ(char_class(U'\u0663'), kNumber | kDigit);  // an Arabic digit
  EXPECT_EQ(char_class(U'\u00bd'), kNumber | kDigit);  // one half
  EXPECT_EQ(char_class(U'\u2167'), kNumber | kDigit);  // Roman eight
  EXPECT_EQ(char_class(U'\u3000'), kSpace);
  EXPECT_EQ(char_class(U'\u0085'), kSpace);
  EXPECT_EQ(char_class(U'\u200b'), 0);  // zero width space is no white space
  EXPECT_EQ(char_class(U'\u0301'), 0);  // combining marks are no letters
  EXPECT_EQ(char_class(U'\u3002'), kPunctuation);
  EXPECT_EQ(char_class(U'\U0001f600'), 0);
  EXPECT_EQ(char_class(U'\U00020000'), kLetter);
  EXPECT_EQ(char_class(U'\U0010ffff'), 0);
}

}  // namespace
}  // namespace kvtide
