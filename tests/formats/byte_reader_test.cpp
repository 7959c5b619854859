#include "formats/byte_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::array<std::byte, 12> kBytes = {std::byte{1}, std::byte{2}, std::byte{3},   std::byte{4},
                                              std::byte{5}, std::byte{0}, std::byte{0},   std::byte{0},
                                              std::byte{0}, std::byte{0}, std::byte{'h'}, std::byte{'i'}};

template <class Read>
std::string refusal(Read read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_format);
    return error.message();
  }
  return "(no error)";
}

TEST(ByteReader, ReadsLittleEndianNumbersAtAnyAlignment) {
  ByteReader in(kBytes, "f");
  EXPECT_EQ(in.read<std::uint8_t>("a"), 1);
  EXPECT_EQ(in.read<std::uint32_t>("b"), 0x05040302u);
  EXPECT_EQ(in.offset(), 5u);
  EXPECT_EQ(in.left(), 7u);
  EXPECT_EQ(in.size(), 12u);
}

TEST(ByteReader, ReadsAStringInPlace) {
  std::array<std::byte, 10> bytes{};
  bytes[0] = std::byte{2};
  bytes[8] = std::byte{'h'};
  bytes[9] = std::byte{'i'};
  ByteReader in(bytes, "f");
  const std::string_view text = in.string(10, "the text");
  EXPECT_EQ(text, "hi");
  EXPECT_EQ(static_cast<const void*>(text.data()), bytes.data() + 8);
  EXPECT_EQ(in.left(), 0u);
}

TEST(ByteReader, RefusesToReadPastTheEnd_AndSaysWhatAndWhere) {
  ByteReader in(kBytes, "model.gguf");
  in.subject("tensor", "blk.0");
  in.take(6, "x");
  EXPECT_EQ(refusal([&] { in.read<std::uint64_t>("the offset"); }),
            "model.gguf: tensor 'blk.0': the offset needs 8 bytes at byte 6, but the file ends at byte 12");
}

TEST(ByteReader, StaysWhereItWasWhenAReadIsRefused) {
  ByteReader in(kBytes, "f");
  in.take(6, "x");
  refusal([&] { in.take(7, "y"); });
  EXPECT_EQ(in.offset(), 6u);
  EXPECT_EQ(in.take(6, "z").size(), 6u);
}

TEST(ByteReader, IsNotFooledByLengthsThatWrapAround) {
  ByteReader in(kBytes, "f");
  in.take(6, "x");
  EXPECT_NE(refusal([&] { in.take(~std::uint64_t{0} - 5, "y"); }).find("needs 18446744073709551610 bytes"),
            std::string::npos);
}

TEST(ByteReader, RefusesACountThatTheRestOfTheFileCannotHold) {
  ByteReader in(kBytes, "f");
  in.expect_room(3, 4, "items");
  EXPECT_EQ(
      refusal([&] { in.expect_room(4, 4, "items"); }),
      "f: header: declares 4 items of at least 4 bytes each from byte 0 on, but the file ends at byte 12");
  EXPECT_NE(refusal([&] { in.expect_room((std::uint64_t{1} << 62) + 1, 4, "items"); }), "(no error)");
}

TEST(ByteReader, EscapesNamesThatComeFromTheFile) {
  ByteReader in(kBytes, "f");
  in.subject("key", "a\nb");
  EXPECT_EQ(refusal([&] { in.fail("is wrong"); }), "f: key 'a\\x0ab': is wrong");
}

TEST(ByteReader, OfNothingHasNothingLeft) {
  ByteReader in({}, "f");
  EXPECT_EQ(in.left(), 0u);
  EXPECT_TRUE(in.take(0, "x").empty());
  EXPECT_NE(refusal([&] { in.read<std::uint8_t>("x"); }), "(no error)");
}

}  // namespace
}  // namespace kvtide
