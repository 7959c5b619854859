#include "text/markers.h"

#include <gtest/gtest.h>

#include "tests/text/small_vocabulary.h"

namespace kvtide {
namespace {

TokenId found(const MarkerSet& markers, std::string_view text, std::size_t at, std::size_t markup_end) {
  const Marker* marker = markers.longest_at(text, at, markup_end);
  return marker ? marker->id : -1;
}

TEST(Markers, TheLongestThatStartsHereWins) {
  const MarkerSet markers({{"<a", 1, false}, {"<ab", 2, false}, {"<abcd", 3, false}, {"<b", 4, false}});
  EXPECT_EQ(found(markers, "x<abcde", 1, 0), 3);
  EXPECT_EQ(found(markers, "x<abc", 1, 0), 2);
  EXPECT_EQ(found(markers, "x<a", 1, 0), 1);
  EXPECT_EQ(found(markers, "<c", 0, 0), -1);
  EXPECT_EQ(found(markers, "<", 0, 0), -1);
  EXPECT_EQ(found(markers, "<b", 0, 0), 4);
}

TEST(Markers, AControlMarkerHasToLieInsideTheMarkup) {
  const MarkerSet markers({{"<a>", 1, true}, {"<a>b", 2, true}, {"<", 3, false}});
  EXPECT_EQ(found(markers, "<a>b", 0, 4), 2);
  EXPECT_EQ(found(markers, "<a>b", 0, 3), 1);
  EXPECT_EQ(found(markers, "<a>b", 0, 2), 3);
  EXPECT_EQ(found(markers, "<a>b", 0, 0), 3);
}

TEST(Markers, OfEqualTextsTheLowestIdStays) {
  const MarkerSet markers({{"<x>", 7, true}, {"<x>", 3, true}});
  EXPECT_EQ(found(markers, "<x>", 0, 3), 3);
}

TEST(Markers, AnEmptyTextIsNoMarker) {
  const MarkerSet markers({{"", 1, false}, {"a", 2, false}});
  EXPECT_EQ(found(markers, "b", 0, 1), -1);
  EXPECT_TRUE(markers.may_start('a'));
  EXPECT_FALSE(markers.may_start('b'));
}

TEST(Markers, SearchesBytesAboveAsciiInTheSameOrderAsItSortsThem) {
  const MarkerSet markers({{"\xe2\x96\x81\xe2\x96\x81", 1, false},
                           {"\xe2\x80\x94", 2, false},
                           {"\xe2", 3, false},
                           {"\xe2\x96\x81", 4, false},
                           {"a", 5, false},
                           {"\xe2\xff", 6, false}});
  EXPECT_EQ(found(markers, "\xe2\x96\x81\xe2\x96\x81\xe2", 0, 0), 1);
  EXPECT_EQ(found(markers, "\xe2\x80\x94", 0, 0), 2);
  EXPECT_EQ(found(markers,
                  "\xe2\x96\x81"
                  "a",
                  0, 0),
            4);
  EXPECT_EQ(found(markers, "\xe2\xff", 0, 0), 6);
  EXPECT_EQ(found(markers, "\xe2\x81", 0, 0), 3);
}

TEST(Markers, OneThatIsTooLongIsRefused_AndNamed) {
  const std::string text(257, 'x');
  EXPECT_EQ(refusal([&] {
              MarkerSet({{text, 12, true}});
            }),
            "bad_format: vocabulary: token 12 'xxxxxxxxxxxxxxxxxxxxxxxx...' is a marker of 257 bytes; the "
            "longest allowed "
            "is 256");
  EXPECT_EQ(refusal([&] { MarkerSet({{std::string_view(text).substr(1), 12, true}}); }), "");
}

}  // namespace
}  // namespace kvtide
