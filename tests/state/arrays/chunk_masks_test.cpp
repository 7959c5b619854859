// Masks that a host passes in: what masks.h makes is read back, and each broken rule is named with its slot.
#include "state/arrays/chunk_masks.h"

#include <gtest/gtest.h>

#include <limits>

#include "kvtide/masks.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

using testing::expect_refused;

struct Masks {
  MaskShape shape{4, 8, 3, std::nullopt};
  std::vector<float> attention, write;

  // Three of four columns at positions 3 to 5 of eight slots.
  Masks() : Masks(ChunkMask{3, 4, 8, 3, std::nullopt, 0}) {}
  explicit Masks(const ChunkMask& chunk)
      : shape{chunk.tokens, chunk.rows, chunk.first, std::nullopt},
        attention(attention_mask(chunk)),
        write(write_mask(chunk)) {}
  Masks& see(std::size_t t, std::size_t s, float value) {
    attention[t * static_cast<std::size_t>(shape.slots) + s] = value;
    return *this;
  }
  Masks& put(std::size_t s, std::size_t t, float value) {
    write[s * static_cast<std::size_t>(shape.columns) + t] = value;
    return *this;
  }
  std::vector<Pos> read() const { return read_masks(shape, attention, write); }
};

TEST(ChunkMasks, WhatTheMaskMakersMakeIsReadBack) {
  int read = 0;
  for (std::int64_t slots = 1; slots <= 7; ++slots)
    for (std::int64_t columns = 1; columns <= 4; ++columns)
      for (std::int64_t real = 1; real <= columns; ++real)
        for (Pos first = 0; first + real <= slots; ++first)
          for (std::int64_t size = 0; size <= slots; ++size) {
            ChunkMask chunk{first, columns, slots, real, std::nullopt, 0};
            if (size > 0) chunk.attention_size = size;
            const std::vector<Pos> lowest = Masks(chunk).read();
            ASSERT_EQ(static_cast<std::int64_t>(lowest.size()), real);
            for (std::int64_t t = 0; t < real; ++t)
              ASSERT_EQ(lowest[static_cast<std::size_t>(t)],
                        size == 0 ? 0 : std::max<Pos>(0, first + t - size + 1));
            ++read;
          }
  EXPECT_GT(read, 500);
}

TEST(ChunkMasks, MinusInfinityHidesAsWell) {
  Masks masks;
  for (float& value : masks.attention)
    if (value != 0.0f) value = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(masks.read(), (std::vector<Pos>{0, 0, 0}));
}

TEST(ChunkMasks, EveryBrokenRuleIsNamedWithItsColumnAndSlot) {
  const auto refused = [](const std::string& says, const Masks& masks) {
    expect_refused(ErrorCode::invalid_argument, says, [&] { masks.read(); });
  };
  refused("column 1 is written to slot 5; the state holds 3 positions, so it belongs to slot 4",
          Masks().put(4, 1, 0.0f).put(5, 1, 1.0f));
  refused("column 0 is written to slot 2; the state holds 3 positions",
          Masks().put(3, 0, 0.0f).put(2, 0, 1.0f));
  refused("column 0 is written to slot 3 and to slot 7", Masks().put(7, 0, 1.0f));
  refused("column 1 is written to slot 3; ", Masks().put(4, 1, 0.0f).put(3, 1, 1.0f));
  refused("column 2 is written to slot 5, but column 1 is written nowhere", Masks().put(4, 1, 0.0f));
  refused("the write mask is 0.5 at slot 4 of column 1", Masks().put(4, 1, 0.5f));
  refused("the write mask is nan at slot 0 of column 3",
          Masks().put(0, 3, std::numeric_limits<float>::quiet_NaN()));
  refused("column 0 sees slot 4, which comes after its own slot 3", Masks().see(0, 4, 0.0f));
  refused("column 2 sees slot 6, which comes after its own slot 5", Masks().see(2, 6, 0.0f));
  refused("column 1 does not see slot 2, but it must see every slot from 0 to its own, 4",
          Masks().see(1, 2, -1e4f));
  refused("column 1 does not see slot 4, but it must see every slot from 0", Masks().see(1, 4, -1e4f));
  refused("column 3 sees slot 0, but is written nowhere", Masks().see(3, 0, 0.0f));
  refused("the attention mask is -1 at slot 1 of column 0", Masks().see(0, 1, -1.0f));
  refused("the attention mask is nan at slot 7 of column 2",
          Masks().see(2, 7, std::numeric_limits<float>::quiet_NaN()));
  refused("the attention mask is 1 at slot 0 of column 0", Masks().see(0, 0, 1.0f));
  refused("no column is written: the first belongs to slot 3",
          Masks().put(3, 0, 0.0f).put(4, 1, 0.0f).put(5, 2, 0.0f));
}

TEST(ChunkMasks, AMaskOfTheCallsOwnColumnsOnlyIsRefused) {
  Masks masks;
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t s = 0; s < 3; ++s) masks.see(t, s, -1e4f);
  EXPECT_EQ(masks.read(), (std::vector<Pos>{3, 3, 3}));  // an attention size of its own is the host's choice
  masks.see(0, 3, -1e4f);
  expect_refused(ErrorCode::invalid_argument, "column 0 does not see slot 3", [&] { masks.read(); });
}

TEST(ChunkMasks, ALayerWithAWindowMayNotSeeBeyondIt) {
  Masks masks(ChunkMask{5, 2, 8, std::nullopt, 3, 0});
  masks.shape.window = 3;
  EXPECT_EQ(masks.read(), (std::vector<Pos>{3, 4}));
  masks.see(0, 2, 0.0f);
  expect_refused(ErrorCode::invalid_argument,
                 "column 0 sees slot 2; the window of this layer is 3, so slot 3 is the first it may see",
                 [&] { masks.read(); });
}

TEST(ChunkMasks, AFullStateIsSaidToBeFull) {
  Masks masks(ChunkMask{6, 2, 8, std::nullopt, std::nullopt, 0});
  masks.shape.position = 7;
  masks.write.assign(masks.write.size(), 0.0f);
  masks.put(7, 0, 1.0f).put(6, 1, 1.0f);
  for (std::size_t s = 0; s < 8; ++s) masks.see(0, s, 0.0f);
  expect_refused(ErrorCode::context_full, "column 1 would need slot 8", [&] { masks.read(); });
  masks.shape.position = 8;
  masks.put(7, 0, 0.0f).put(6, 1, 0.0f);
  expect_refused(ErrorCode::context_full, "all 8 slots are in use", [&] { masks.read(); });
}

TEST(ChunkMasks, MasksOfAnotherShapeAreRefused) {
  Masks masks;
  masks.shape.slots = 9;
  expect_refused(ErrorCode::invalid_argument, "the attention mask has 32 elements; [1, 1, 4, 9] has 36",
                 [&] { masks.read(); });
  masks.attention.resize(36);
  expect_refused(ErrorCode::invalid_argument, "the write mask has 32 elements; [1, 1, 9, 4] has 36",
                 [&] { masks.read(); });
}

}  // namespace
}  // namespace kvtide
