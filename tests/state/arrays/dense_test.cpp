#include "state/arrays/dense.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "kvtide/error.h"
#include "kvtide/state_transition.h"

namespace kvtide {
namespace {

using Bytes = std::vector<std::byte>;
using Shape = std::vector<std::int64_t>;

std::int64_t bytes_of(const Shape& shape, std::int64_t element) {
  for (const std::int64_t extent : shape) element *= extent;
  return element;
}

Bytes noise(std::int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(static_cast<std::size_t>(size));
  for (auto& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
  return bytes;
}

// The contract, byte by byte, with the indices written out.
std::byte expected_byte(const Bytes& source, const Shape& from, const Shape& to, const Bytes& pad,
                        std::int64_t position, std::int64_t index) {
  const auto element = static_cast<std::int64_t>(pad.size());
  const std::int64_t byte = index % element, channel = index / element % to[3];
  const std::int64_t seq = index / element / to[3] % to[2];
  const std::int64_t head = index / element / to[3] / to[2];  // of all rows
  if (seq >= position) return pad[static_cast<std::size_t>(byte)];
  return source[static_cast<std::size_t>(((head * from[2] + seq) * from[3] + channel) * element + byte)];
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
  return "";
}

// A call that can be made wrong in one place at a time.
struct Case {
  Shape from{2, 3, 8, 4}, to{2, 3, 16, 4};
  std::optional<Pos> position = 5;
  Bytes pad = Bytes(2);
  Bytes source = noise(2 * 3 * 8 * 4 * 2, 1);
  Bytes target = noise(2 * 3 * 16 * 4 * 2, 2);

  std::string transition() {
    return refusal([&] { kvtide::transition({source, from}, {target, to}, position, {.pad = pad}); });
  }
  std::string compact() {
    return refusal([&] { kvtide::compact({source, from}, {target, to}, *position, {.pad = pad}); });
  }
};

TEST(Dense, EveryByteIsTheSourcesOrPadding_ForEveryPositionElementSizeAndThreadCount) {
  const Shape from{2, 3, 5, 7};
  for (const std::size_t element : {1u, 2u, 3u, 4u, 8u, 64u}) {
    const Bytes source = noise(bytes_of(from, static_cast<std::int64_t>(element)), 3);
    const Bytes pad = noise(static_cast<std::int64_t>(element), 4);
    for (const std::int64_t longer : {0, 1, 6})
      for (Pos position = 0; position <= 5; ++position)
        for (const int threads : {1, 2, 3}) {
          const Shape to{2, 3, 5 + longer, 7};
          Bytes target = noise(bytes_of(to, static_cast<std::int64_t>(element)), 5);
          transition({source, from}, {target, to}, position, {.pad = pad, .threads = threads});
          for (std::size_t i = 0; i < target.size(); ++i)
            ASSERT_EQ(target[i], expected_byte(source, from, to, pad, position, static_cast<std::int64_t>(i)))
                << "element " << element << ", longer " << longer << ", position " << position << ", byte "
                << i;
        }
  }
}

// Above the size from which stores go past the caches, with blocks that start at every offset within a line.
TEST(Dense, LargeArraysThatAreNotAligned_MoveBitForBit) {
  const Bytes pad{std::byte{7}, std::byte{9}};
  for (const bool fresh : {false, true})
    for (const std::int64_t channels : {1, 33, 640}) {
      const std::int64_t seq = 3'000'000 / channels, longer = seq + 1001, position = seq - 13;
      const Shape from{1, 2, seq, channels}, to{1, 2, longer, channels};
      const Bytes source = noise(bytes_of(from, 2) + 1, 6);
      Bytes target = noise(bytes_of(to, 2) + 1, 7);
      Bytes expected(target.begin(), target.begin() + 1);  // in front of the array: not to be touched
      for (std::int64_t head = 0; head < 2; ++head) {
        const auto begin = source.begin() + 1 + head * seq * channels * 2;
        expected.insert(expected.end(), begin, begin + position * channels * 2);
        for (std::int64_t i = 0; i < (longer - position) * channels; ++i)
          expected.insert(expected.end(), pad.begin(), pad.end());
      }
      transition({std::span(source).subspan(1), from}, {std::span(target).subspan(1), to}, position,
                 {.pad = pad, .threads = 2, .target_is_fresh = fresh});
      EXPECT_TRUE(target == expected) << channels << " channels, fresh " << fresh;
    }
}

TEST(Dense, CompactHasZerosBehindThePosition_WhateverThePaddingOfTheOptions) {
  const Shape from{2, 1, 9, 3}, to{2, 1, 4, 3};
  const Bytes source = noise(bytes_of(from, 4), 8);
  for (Pos position = 0; position <= 4; ++position) {
    Bytes target = noise(bytes_of(to, 4), 9);
    const auto record = compact({source, from}, {target, to}, position, {.pad = noise(4, 10)});
    for (std::size_t i = 0; i < target.size(); ++i)
      ASSERT_EQ(target[i], expected_byte(source, from, to, Bytes(4), position, static_cast<std::int64_t>(i)));
    EXPECT_EQ(record.kept, position);
    EXPECT_EQ(record.dropped, 9 - position);
    EXPECT_EQ(record.bytes_before, 216);
    EXPECT_EQ(record.bytes_after, 96);
    EXPECT_GE(record.milliseconds, 0.0);
  }
}

TEST(Dense, CompactMayHaveALongerTarget) {
  const Shape from{1, 1, 2, 1}, to{1, 1, 4, 1};
  const Bytes source{std::byte{1}, std::byte{2}};
  Bytes target = noise(4, 11);
  compact({source, from}, {target, to}, 2, {.pad = Bytes(1)});
  EXPECT_EQ(target, (Bytes{std::byte{1}, std::byte{2}, std::byte{0}, std::byte{0}}));
}

TEST(Dense, NoPositionMeansTheWholeSource) {
  const Shape from{1, 1, 2, 1}, to{1, 1, 3, 1};
  const Bytes source{std::byte{1}, std::byte{2}};
  Bytes target(3);
  transition({source, from}, {target, to}, std::nullopt, {.pad = {std::byte{9}}});
  EXPECT_EQ(target, (Bytes{std::byte{1}, std::byte{2}, std::byte{9}}));
}

TEST(Dense, ATargetThatIsPaddedAlready_KeepsWhatLiesBehindThePosition) {
  const Shape from{1, 2, 2, 1}, to{1, 2, 3, 1};
  const Bytes source = noise(4, 12);
  Bytes target(6, std::byte{5});
  transition({source, from}, {target, to}, 1, {.pad = {std::byte{9}}, .target_is_padded = true});
  EXPECT_EQ(target, (Bytes{source[0], std::byte{5}, std::byte{5}, source[2], std::byte{5}, std::byte{5}}));
}

TEST(Dense, AnArrayMayBeItsOwnTarget_OnlyWhenNothingChanges) {
  const Shape shape{1, 1, 4, 2};
  Bytes bytes = noise(16, 13);
  const Bytes before = bytes;
  EXPECT_EQ(refusal([&] { transition({bytes, shape}, {bytes, shape}); }), "");
  EXPECT_EQ(refusal([&] {
              transition({bytes, shape}, {bytes, shape}, 3);
            }),
            "source and target overlap in memory; give the target memory of its own");
  EXPECT_EQ(bytes, before);
}

TEST(Dense, ArraysThatTouchDoNotOverlap) {
  Bytes bytes = noise(24, 14);
  const std::span<std::byte> all(bytes);
  EXPECT_EQ(refusal([&] { transition({all.first(8), {1, 1, 4, 1}}, {all.subspan(8), {1, 1, 8, 1}}); }), "");
  EXPECT_NE(refusal([&] {
              transition({all.first(8), {1, 1, 4, 1}}, {all.subspan(6, 16), {1, 1, 8, 1}});
            }),
            "");
}

TEST(Dense, EmptyArraysMoveNothing) {
  for (const Shape& shape : {Shape{0, 1, 4, 2}, Shape{1, 0, 4, 2}, Shape{1, 1, 0, 2}, Shape{1, 1, 4, 0}})
    EXPECT_EQ(refusal([&] { transition({{}, shape}, {{}, shape}, shape[2]); }), "");
}

TEST(Dense, RefusesWhatItCannotGrow_InTheOrderOfTheContract) {
  Case c;
  c.from = {3, 8, 4};
  c.to = {2, 3, 4, 9, 9};
  c.position = 99;
  EXPECT_EQ(c.transition(), "Expected 4D state tensor [rows, kv_heads, seq, head_dim], got shape (3, 8, 4)");
  c.from = {2, 3, 8, 4};
  EXPECT_EQ(c.transition(),
            "Expected 4D state tensor [rows, kv_heads, seq, head_dim], got shape (2, 3, 4, 9, 9)");
  c.to = {1, 1, 4, 1};
  EXPECT_EQ(c.transition(), "target_seq_length (4) must be >= the source sequence length (8)");
  c.to[2] = 8;
  EXPECT_EQ(c.transition(), "current_position (99) cannot exceed the source sequence length (8)");
  c.position = -1;
  EXPECT_EQ(c.transition(), "current_position (-1) must not be negative");
  c.position = 8;
  EXPECT_EQ(c.transition(), "Layer count mismatch: source has 2, target has 1");
  c.to[0] = 2;
  EXPECT_EQ(c.transition(), "KV head count mismatch: source has 3, target has 1");
  c.to[1] = 3;
  EXPECT_EQ(c.transition(), "Head dimension mismatch: source has 4, target has 1");
  c.to[3] = 4;
  EXPECT_EQ(c.transition(),
            "the target has 768 bytes, but its shape (2, 3, 8, 4) with elements of 2 bytes needs 384");
  EXPECT_EQ(c.target, Case().target);
}

TEST(Dense, RefusesWhatItCannotShrink_InTheOrderOfTheContract) {
  Case c;
  c.from = {8};
  c.position = 99;
  EXPECT_EQ(c.compact(), "Expected 4D state tensor [rows, kv_heads, seq, head_dim], got shape (8,)");
  c.from = {2, 3, 8, 4};
  EXPECT_EQ(c.compact(), "Cannot compact to 16: 99 positions are in use");
  c.position = 9;
  EXPECT_EQ(c.compact(), "current_position (9) cannot exceed the source sequence length (8)");
  c.position = -3;
  EXPECT_EQ(c.compact(), "current_position (-3) must not be negative");
  EXPECT_EQ(c.target, Case().target);
}

TEST(Dense, RefusesSizesThatDoNotMatchTheBytes) {
  Case c;
  c.pad = Bytes(3);
  EXPECT_EQ(c.transition(),
            "the source has 384 bytes, but its shape (2, 3, 8, 4) with elements of 3 bytes needs 576");
  c.pad.clear();
  EXPECT_EQ(c.transition(), "an element of padding has 1 to 64 bytes, not 0");
  c.pad = Bytes(65);
  EXPECT_EQ(c.transition(), "an element of padding has 1 to 64 bytes, not 65");
  c = Case();
  c.from[1] = c.to[1] = -3;
  EXPECT_EQ(c.transition(), "the source's shape (2, -3, 8, 4) has a negative extent");
  c.from[1] = c.to[1] = std::int64_t{1} << 61;
  EXPECT_EQ(c.transition(),
            "the source has 384 bytes, but its shape (2, 2305843009213693952, 8, 4) with elements of "
            "2 bytes needs more than 2^63");
}

TEST(Dense, ShapesAreComparedInTheOrderOfTheContract) {
  Shape source{2, 3, 8}, target{1, 1, 4};
  const auto verdict = [&] { return refusal([&] { validate_state_shapes(source, target); }); };
  EXPECT_EQ(verdict(), "Source state must be 4D, got 3D");
  source.push_back(4);
  EXPECT_EQ(verdict(), "Target state must be 4D, got 3D");
  target.push_back(1);
  EXPECT_EQ(verdict(), "Layer count mismatch: source has 2, target has 1");
  target[0] = 2;
  EXPECT_EQ(verdict(), "KV head count mismatch: source has 3, target has 1");
  target[1] = 3;
  EXPECT_EQ(verdict(), "Head dimension mismatch: source has 4, target has 1");
  target[3] = 4;
  EXPECT_EQ(verdict(), "Target sequence length (4) must be >= source sequence length (8)");
  target[2] = 8;
  EXPECT_EQ(verdict(), "");
}

TEST(Dense, TransitionInfoIsArithmetic) {
  const TransitionInfo info = transition_info(256, 512, 200);
  EXPECT_EQ(info.source_seq_length, 256);
  EXPECT_EQ(info.target_seq_length, 512);
  EXPECT_EQ(info.current_position, 200);
  EXPECT_EQ(info.valid_tokens, 200);
  EXPECT_EQ(info.padded_positions_source, 56);
  EXPECT_EQ(info.padded_positions_target, 312);
  EXPECT_EQ(info.expansion_factor, 2.0);
  EXPECT_EQ(info.additional_capacity, 256);
}

TEST(Dense, APaddedTargetMovesFewerBytes) {
  const Bytes pad(2);
  DenseMove move{.blocks = 3, .source_block = 40, .target_block = 100, .kept = 20, .pad = pad};
  EXPECT_EQ(bytes_moved(move), 360);
  move.target_is_padded = true;
  EXPECT_EQ(bytes_moved(move), 120);
}

}  // namespace
}  // namespace kvtide
