#include "base/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "kvtide/error.h"
#include "tests/base/resident.h"

namespace kvtide {
namespace {

bool all_equal(const Buffer& buffer, std::size_t begin, std::size_t end, std::byte value) {
  return std::all_of(buffer.data() + begin, buffer.data() + end, [&](std::byte b) { return b == value; });
}

TEST(Buffer, StartsZeroFilledAndPageAligned) {
  const Buffer buffer(10000);
  ASSERT_EQ(buffer.size(), 10000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
  EXPECT_TRUE(all_equal(buffer, 0, buffer.size(), std::byte{0}));
}

TEST(Buffer, OfLargePagesStartsAtOne_AndTakesNoAddressesBeside) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{10000}, std::size_t{5} << 20}) {
    Buffer buffer(size, Buffer::Pages::large);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % (2u << 20), 0u);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_TRUE(all_equal(buffer, 0, size, std::byte{0}));
    buffer.data()[size - 1] = std::byte{1};
  }
}

TEST(Buffer, OfNoBytesIsEmpty) {
  const Buffer buffer(0);
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.data(), nullptr);
}

TEST(Buffer, UsesMemoryOnlyForThePagesThatWereTouched) {
  constexpr std::size_t kTouched = std::size_t{1} << 20;
  Buffer buffer(std::size_t{64} << 20);
  ASSERT_EQ(resident_bytes(buffer.data(), buffer.size()), 0u);
  std::memset(buffer.data(), 1, kTouched);
  EXPECT_EQ(resident_bytes(buffer.data(), kTouched), kTouched);
  // Huge pages, where the system uses them unasked, end within the next 2 MiB.
  EXPECT_EQ(resident_bytes(buffer.data() + 2 * kTouched, buffer.size() - 2 * kTouched), 0u);
}

TEST(Buffer, ReservesMoreThanTheMachineHasRoomFor_BecauseOnlyTouchingCosts) {
  const Buffer buffer(std::size_t{1} << 40);
  EXPECT_EQ(buffer.data()[(std::size_t{1} << 40) - 1], std::byte{0});
}

TEST(Buffer, RefusesAnImpossibleSize_WithATypedError) {
  try {
    const Buffer buffer(std::size_t{1} << 62);
    FAIL() << "reserved 2^62 bytes at " << static_cast<const void*>(buffer.data());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_NE(error.message().find("4611686018427387904 bytes"), std::string::npos) << error.message();
  }
}

TEST(Buffer, GivesBackOnlyWholePages_WhichThenReadAsZeros) {
  Buffer buffer(4 * 4096);
  std::memset(buffer.data(), 7, buffer.size());
  buffer.give_back(100, 3 * 4096);  // covers pages 1 and 2 wholly, pages 0 and 3 in part
  EXPECT_TRUE(all_equal(buffer, 0, 4096, std::byte{7}));
  EXPECT_TRUE(all_equal(buffer, 4096, 3 * 4096, std::byte{0}));
  EXPECT_TRUE(all_equal(buffer, 3 * 4096, 4 * 4096, std::byte{7}));
}

TEST(Buffer, GivesBackNothingWhenNoPageIsCoveredWholly) {
  Buffer buffer(2 * 4096);
  std::memset(buffer.data(), 7, buffer.size());
  buffer.give_back(1, 4095);
  buffer.give_back(4000, 200);
  buffer.give_back(4096, 0);
  EXPECT_TRUE(all_equal(buffer, 0, buffer.size(), std::byte{7}));
}

TEST(Buffer, GivenBackPagesLeaveTheResidentSet) {
  Buffer buffer(std::size_t{8} << 20);
  std::memset(buffer.data(), 7, buffer.size());
  ASSERT_EQ(resident_bytes(buffer.data(), buffer.size()), buffer.size());
  buffer.give_back(0, buffer.size());
  EXPECT_EQ(resident_bytes(buffer.data(), buffer.size()), 0u);
}

TEST(Buffer, MovesWithItsBytes_LeavingTheSourceEmpty) {
  Buffer first(4096);
  first.data()[5] = std::byte{42};
  const std::byte* place = first.data();
  Buffer second(std::move(first));
  EXPECT_EQ(second.data(), place);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT: the moved-from state is specified
  EXPECT_EQ(first.size(), 0u);
  Buffer third;
  third = std::move(second);
  ASSERT_EQ(third.size(), 4096u);
  EXPECT_EQ(third.as<std::uint8_t>()[5], 42);
}

}  // namespace
}  // namespace kvtide
