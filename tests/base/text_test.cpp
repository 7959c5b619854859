#include "base/text.h"

#include <gtest/gtest.h>

#include <iomanip>
#include <string>
#include <string_view>

namespace kvtide {
namespace {

TEST(Cat, JoinsWhateverCanBeStreamed) { EXPECT_EQ(cat("row ", 3, " of ", 4.5, '!'), "row 3 of 4.5!"); }

TEST(Cat, OfNothingIsEmpty) { EXPECT_EQ(cat(), ""); }

TEST(Quoted, LeavesPlainTextReadable) { EXPECT_EQ(quoted("blk.0.attn_q.weight"), "'blk.0.attn_q.weight'"); }

TEST(Quoted, LeavesValidUtf8Readable) {
  EXPECT_EQ(quoted("Война и мир 世界 🙂"), "'Война и мир 世界 🙂'");
}

TEST(Quoted, EscapesControlCharactersQuotesAndBackslashes) {
  EXPECT_EQ(quoted("a\nb\t"), "'a\\x0ab\\x09'");
  EXPECT_EQ(quoted("it's \\"), "'it\\x27s \\x5c'");
  EXPECT_EQ(quoted(std::string_view("\0", 1)), "'\\x00'");
  EXPECT_EQ(quoted("\x1b[31m"), "'\\x1b[31m'");
  EXPECT_EQ(quoted("\x7f"), "'\\x7f'");
}

TEST(Quoted, EscapesBytesThatAreNotUtf8_SoThatTheMessageStaysValid) {
  EXPECT_EQ(quoted("\xff\xfe"), "'\\xff\\xfe'");
  EXPECT_EQ(quoted("a\xc3"), "'a\\xc3'");                           // cut short
  EXPECT_EQ(quoted("\xc0\xaf"), "'\\xc0\\xaf'");                    // overlong '/'
  EXPECT_EQ(quoted("\xe0\x80\xaf"), "'\\xe0\\x80\\xaf'");           // overlong, three bytes
  EXPECT_EQ(quoted("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");           // a surrogate
  EXPECT_EQ(quoted("\xf4\x90\x80\x80"), "'\\xf4\\x90\\x80\\x80'");  // above U+10FFFF
  EXPECT_EQ(quoted("\x80z"), "'\\x80z'");                           // a continuation byte alone
}

TEST(Quoted, EscapesTheControlCharactersAboveAscii) {
  EXPECT_EQ(quoted("\xc2\x9b"), "'\\xc2\\x9b'");  // U+009B starts a terminal sequence
  EXPECT_EQ(quoted("\xc2\xa0"), "'\xc2\xa0'");    // U+00A0 is only a space
}

TEST(Quoted, CutsLongTextAndSaysSo) {
  EXPECT_EQ(quoted("abcdef", 6), "'abcdef'");
  EXPECT_EQ(quoted("abcdefg", 6), "'abcdef...'");
  EXPECT_EQ(quoted(std::string(1000, 'x')).size(), 80 + std::string("'...'").size());
}

TEST(Quoted, TakesAStringByItsOwnRules_AlsoWhereIomanipOffersStdQuoted) {
  const std::string constant = "a\nb";
  std::string variable = constant;
  EXPECT_EQ(quoted(constant), "'a\\x0ab'");
  EXPECT_EQ(quoted(variable), "'a\\x0ab'");
  EXPECT_EQ(quoted(std::string("a\nb")), "'a\\x0ab'");
  EXPECT_EQ(quoted(std::string_view("a\nb")), "'a\\x0ab'");
}

TEST(Quoted, NeverCutsInsideACharacter) {
  EXPECT_EQ(quoted("ab世界", 5), "'ab世...'");
  EXPECT_EQ(quoted("ab世界", 6), "'ab世...'");
  EXPECT_EQ(quoted("ab世界", 8), "'ab世界'");
}

}  // namespace
}  // namespace kvtide
