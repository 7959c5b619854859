#include "text/utf8.h"

#include <gtest/gtest.h>

#include "tests/text/small_vocabulary.h"

namespace kvtide {
namespace {

TEST(Utf8, AcceptsTheFirstAndLastCharacterOfEveryLength) {
  for (const char* text : {"", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(find_invalid_utf8(text), std::nullopt) << text;
  }
  EXPECT_EQ(find_invalid_utf8(std::string_view("a\0b", 3)), std::nullopt);
}

struct BadText {
  const char* what;
  std::string_view bytes;
  std::size_t offset;
};

TEST(Utf8, RefusesWhatIsNotValid_AndSaysAtWhichByte) {
  const BadText cases[] = {
      {"a continuation byte alone", "ab\x80", 2},
      {"an overlong slash", "\xc0\xaf", 0},
      {"an overlong two-byte lead", "x\xc1\xbf", 1},
      {"an overlong three-byte form", "\xe0\x9f\xbf", 0},
      {"an overlong four-byte form", "\xf0\x8f\xbf\xbf", 0},
      {"a high surrogate", "abc\xed\xa0\x80", 3},
      {"a low surrogate", "\xed\xbf\xbf", 0},
      {"above U+10FFFF", "\xf4\x90\x80\x80", 0},
      {"a lead that UTF-8 does not have", "\xf5\x80\x80\x80", 0},
      {"0xff", "0123456789abcdef\xff", 16},
      {"two bytes of three at the end", "ok\xe4\xb8", 2},
      {"three bytes of four at the end", "\xf0\x9f\x98", 0},
      {"a lead before ASCII",
       "12345678\xc3"
       "A",
       8},
  };
  for (const BadText& bad : cases) {
    EXPECT_EQ(find_invalid_utf8(bad.bytes), bad.offset) << bad.what;
  }
}

TEST(Utf8, AgreesWithADecoderThatKnowsNothingOfBytesOnEveryCodePoint) {
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const bool surrogate = c >= 0xd800 && c < 0xe000;
    text.clear();
    append_utf8(text, c);
    ASSERT_EQ(find_invalid_utf8(text), surrogate ? std::optional<std::size_t>(0) : std::nullopt)
        << std::hex << int(c);
    if (surrogate) continue;
    ASSERT_EQ(utf8_at(text, 0), c);
    ASSERT_EQ(utf8_length(text[0]), text.size());
  }
}

TEST(Utf8, TheErrorNamesTheTextAndTheByte) {
  EXPECT_EQ(refusal([] { require_utf8("ab\xff", "prompt"); }).substr(0, 54),
            "bad_text: prompt is not valid UTF-8 at byte 2 of 3; kv");
}

TEST(Utf8Stream, HoldsBackACharacterUntilItIsWhole) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xf0"), "a");
  EXPECT_EQ(stream.push("\x9f"), "");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80"
                        "b"),
            "\xf0\x9f\x98\x80"
            "b");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, ShowsAReplacementForWhatCanNeverBecomeACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\x80z"), "a\xef\xbf\xbdz");
  EXPECT_EQ(stream.push("\xe4\xb8"), "");
  EXPECT_EQ(stream.push("!"), "\xef\xbf\xbd!");
  EXPECT_EQ(stream.push("\xed\xa0"), "\xef\xbf\xbd\xef\xbf\xbd");  // the start of a surrogate
}

TEST(Utf8Stream, EndsAnUnfinishedCharacterWithOneReplacement_AndCanBeUsedAgain) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xf0\x9f\x98"), "");
  EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("ok"), "ok");
}

}  // namespace
}  // namespace kvtide
