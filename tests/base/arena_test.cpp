#include "base/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/base/resident.h"

namespace kvtide {
namespace {

TEST(Arena, GivesPiecesThatStartAsZerosAndLieApart) {
  Arena arena;
  std::vector<std::pair<std::byte*, std::size_t>> pieces;
  for (const std::size_t size : {1u, 63u, 64u, 65u, 4096u, 3u << 20, 70u << 20, 100u, 40u << 20, 40u << 20}) {
    std::byte* piece = arena.take(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece) % 64, 0u) << size;
    EXPECT_EQ(piece[0], std::byte{0});
    EXPECT_EQ(piece[size - 1], std::byte{0}) << size;
    piece[0] = piece[size - 1] = std::byte{7};
    for (const auto& [other, bytes] : pieces) EXPECT_TRUE(piece + size <= other || other + bytes <= piece);
    pieces.emplace_back(piece, size);
  }
  const Arena moved = std::move(arena);
  for (const auto& [piece, size] : pieces) EXPECT_EQ(piece[size - 1], std::byte{7});
}

TEST(Arena, TakesMemoryForWhatIsUsedAndOneLargePageAtMost) {
  Arena arena;
  std::byte* first = arena.take(100000);
  std::memset(first, 1, 100000);
  const std::byte* last = arena.take(60u << 20);
  EXPECT_LE(resident_bytes(first, 62u << 20), std::size_t{2} << 20);
  EXPECT_EQ(resident_bytes(last + (4u << 20), 56u << 20), 0u);
}

}  // namespace
}  // namespace kvtide
