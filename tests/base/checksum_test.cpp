#include "base/checksum.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace kvtide {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.add(bytes_of(text));
  return hex(hash.finish());
}

// RFC 3720, appendix B.4.
TEST(Crc32c, HasTheValuesThatItsStandardPrints) {
  std::string ascending, descending;
  for (int i = 0; i < 32; ++i) {
    ascending += static_cast<char>(i);
    descending += static_cast<char>(31 - i);
  }
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(crc32c(bytes_of(ascending)), 0x46dd794eu);
  EXPECT_EQ(crc32c(bytes_of(descending)), 0x113fdb5cu);
  const unsigned char read_command[48] = {0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
                                          0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                                          0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0};
  EXPECT_EQ(crc32c(std::as_bytes(std::span(read_command))), 0xd9963a56u);
}

// The check value of the catalogues of CRCs.
TEST(Crc32c, OfTheDigitsOneToNine) { EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u); }

TEST(Crc32c, OfNothingIsZero) { EXPECT_EQ(crc32c({}), 0u); }

TEST(Crc32c, ContinuesWhereverTheBytesAreCut) {
  const std::string text = "A checksum that depends on how its bytes arrive would be of little use.";
  const std::uint32_t whole = crc32c(bytes_of(text));
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32c(bytes_of(text.substr(cut)), crc32c(bytes_of(text.substr(0, cut)))), whole) << cut;
}

// Long ones are summed in lanes.
TEST(Crc32c, OfManyBytesIsThatOfOneAfterAnother) {
  std::vector<std::byte> bytes(7000);
  std::uint32_t draw = 7;
  for (std::byte& byte : bytes) {
    draw = draw * 1664525 + 1013904223;
    byte = static_cast<std::byte>(draw >> 24);
  }
  std::uint32_t sum = 0;
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_EQ(crc32c(std::span(bytes).first(length)), sum) << length;
    sum = crc32c(std::span(bytes).subspan(length, 1), sum);
  }
}

TEST(Crc32c, OfTwoRunsIsJoinedFromTheirs) {
  const std::vector<std::byte> bytes(3000, std::byte{0xa7});
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto first = std::span(bytes).first(cut), second = std::span(bytes).subspan(cut);
    ASSERT_EQ(crc32c_joined(crc32c(first), crc32c(second), second.size()), whole) << cut;
  }
}

// FIPS 180-2, appendix B, and the empty message.
TEST(Sha256, HasTheValuesThatItsStandardPrints) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                   "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Values of another implementation, for messages that end before, at and after the padding's edges.
TEST(Sha256, PadsMessagesOfEveryLengthRight) {
  const std::pair<std::size_t, const char*> known[] = {
      {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
      {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
      {57, "f13b2d724659eb3bf47f2dd6af1accc87b81f09f59f2b75e5c0bed6589dfe8c6"},
      {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
      {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
      {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
      {119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
      {120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
      {127, "c57e9278af78fa3cab38667bef4ce29d783787a2f731d4e12200270f0c32320a"},
      {128, "6836cf13bac400e9105071cd6af47084dfacad4e5e302c94bfed24e013afb73e"},
      {1000, "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3"},
  };
  for (const auto& [length, wanted] : known) EXPECT_EQ(sha256(std::string(length, 'a')), wanted) << length;
}

TEST(Sha256, IsTheSameHoweverTheBytesArrive) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i * 7);
  const std::string whole = sha256(text);
  for (std::size_t part = 1; part < 130; ++part) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += part)
      hash.add(bytes_of(std::string_view(text).substr(at, part)));
    hash.add({});
    EXPECT_EQ(hex(hash.finish()), whole) << part;
  }
}

TEST(Hex, WritesTwoLowerCaseDigitsForEachByte) {
  EXPECT_EQ(hex(bytes_of(std::string_view("\x00\x0f\xa9\xff", 4))), "000fa9ff");
  EXPECT_EQ(hex({}), "");
}

}  // namespace
}  // namespace kvtide
