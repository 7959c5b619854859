// Transitions by example, and what made-up sequences (tests/property) once found wrong.
#include <gtest/gtest.h>

#include "kvtide/error.h"
#include "state/spec/bytes.h"
#include "state/state.h"
#include "tests/base/resident.h"
#include "tests/model/expect_refused.h"
#include "tests/state/filled_state.h"

namespace kvtide {
namespace {

using testing::append;
using testing::fill;
using testing::seen;
using testing::small_spec;

std::string refusal(const KvState& state, const Transition& transition) {
  return state.plan(transition).refusal();
}

TEST(Transition, ExpandKeepsEveryRowWhereItIs) {
  KvState state(small_spec(256));
  append(state, 256);
  const std::byte* before =
      state.image().runs[0].empty() ? nullptr : state.rows_of_head(0, 0, KvPart::keys, {0, 256}).data;
  for (std::int64_t capacity = 512; capacity <= 32768; capacity *= 2) {
    const TransitionRecord record = state.apply(Expand{capacity});
    EXPECT_EQ(record.capacity_after, capacity);
    EXPECT_EQ(record.bytes_after, record.bytes_before);
    EXPECT_EQ(state.rows_of_head(0, 0, KvPart::keys, {0, 256}).data, before) << "nothing was copied";
    EXPECT_EQ(seen(state), "0-255");
  }
  append(state, 300);
  EXPECT_EQ(seen(state), "0-555");
}

TEST(Transition, CompactRefusesWhenRowsDoNotFit_AndChangesNothing) {
  KvState state(small_spec(400));
  append(state, 300);
  EXPECT_EQ(refusal(state, Compact{256}), "cannot compact to 256 rows: 300 are in use");
  EXPECT_THROW(state.apply(Compact{256}), Error);
  EXPECT_EQ(state.capacity(), 400);
  EXPECT_EQ(seen(state), "0-299");
  EXPECT_EQ(state.apply(Compact{301}).capacity_after, 301);
  append(state, 1);
  EXPECT_THROW(state.begin(1), Error);
}

TEST(Transition, TheStandardStory_PrefillCompactGenerateExpand) {
  KvState state(small_spec(512));
  append(state, 200);
  state.apply(Compact{256});
  append(state, 56);
  EXPECT_THROW(state.begin(1), Error);
  state.apply(SetAttention{128});
  state.apply(Expand{1024});
  EXPECT_EQ(seen(state), "129-255") << "128 keys with the token's own";
  append(state, 300);
  state.apply(SetAttention{std::nullopt});
  EXPECT_EQ(seen(state), "0-555");
}

TEST(Transition, AttentionSizeChangesWhatIsSeen_NotWhatIsHeld) {
  KvState state(small_spec());
  append(state, 100);
  const std::int64_t held = state.held_bytes();
  for (const std::int64_t size : {1, 2, 50, 100, 101, 7}) {
    state.apply(SetAttention{size});
    EXPECT_EQ(seen(state), size == 1 ? "" : cat(std::max<Pos>(0, 101 - size), "-99")) << size;
    EXPECT_EQ(state.held_bytes(), held);
  }
  EXPECT_EQ(refusal(state, SetAttention{0}), "an attention size of 0 sees nothing; at least 1 is needed");
}

TEST(Transition, TruncateTakesBackTokens_AndTheirRowsReadAsZeros) {
  KvState state(small_spec());
  append(state, 200);
  EXPECT_EQ(state.apply(Truncate{70}).rows_dropped, 130);
  KvState::Step step = state.begin(60);
  const auto spans = step.spans(0);
  const Span& span = spans[0].back();
  for (std::int64_t row = 70 - *span.first; row < span.rows; ++row)
    EXPECT_EQ(testing::all_zero(span.keys + row * span.key_stride, span.key_stride), "") << row;
}

TEST(Transition, TruncateBeforeTheFirstDroppedText_IsAsIfNothingHadBeenDropped) {
  KvState state(small_spec());
  append(state, 100);
  state.apply(Drop{{50, 60}, true});
  EXPECT_EQ(seen(state), "0-49>10 60-99");
  EXPECT_EQ(
      refusal(state, Truncate{55}),
      "cannot truncate to 55 positions: text before position 60 was dropped; the smallest that works is 60");
  state.apply(Truncate{40});
  append(state, 20);
  EXPECT_EQ(seen(state), "0-59");
}

TEST(Transition, TruncateToTheEndOfAWindowThatHasMovedOn_NamesTheSmallestLength) {
  KvSpec spec = small_spec(1000);
  spec.layers.push_back({1, 32, 100});
  spec.slack = 10;
  KvState state(spec);
  append(state, 500);  // the last step began at 448: tiles below (448 - 100 + 1 - 10) / 64 * 64 = 320 went
  EXPECT_EQ(refusal(state, Truncate{418}),
            "cannot truncate to 418 positions: a window has moved on; the smallest that works is 419");
  state.apply(Truncate{419});
  EXPECT_EQ(seen(state, 1), "320-418");
}

TEST(Transition, TruncateOfARollingState_IsRefusedWhenTheRowsThatComeBackDoNotFit) {
  KvSpec spec = small_spec(110, 80);
  spec.rolling = Rolling{4, 64};
  KvState state(spec);
  append(state, 98);
  state.apply(Drop{{80, 98}});
  append(state, 8);
  state.apply(Compact{state.rows()});
  EXPECT_EQ(state.rows(), 4 + 46);
  EXPECT_EQ(refusal(state, Truncate{80}),
            "cannot truncate to 80 positions: 68 rows would be in use, of 50; the smallest that works is 98");
}

TEST(Transition, DropLeavesAHole_OrClosesIt) {
  KvState state(small_spec());
  append(state, 100);
  state.apply(Drop{{10, 20}});
  EXPECT_EQ(seen(state), "0-9 20-99");
  state.apply(Drop{{50, 60}, true});
  EXPECT_EQ(seen(state), "0-9>10 20-49>10 60-99");
  EXPECT_EQ(state.position(), 100);
  EXPECT_EQ(state.rows(), 80);
  append(state, 10);
  EXPECT_EQ(seen(state), "0-9>10 20-49>10 60-109");
}

TEST(Transition, AStateWithAbsolutePositions_RefusesToMoveTextAndStaysAsItIs) {
  KvSpec spec = small_spec();
  spec.rotary = false;
  KvState state(spec);
  append(state, 100);
  EXPECT_EQ(refusal(state, Drop{{10, 20}, true}), "cannot close the gap: the model's positions are absolute");
  EXPECT_THROW(state.apply(Drop{{10, 20}, true}), Error);
  EXPECT_EQ(seen(state), "0-99");
  state.apply(Drop{{10, 20}});  // moves nothing
  EXPECT_EQ(seen(state), "0-9 20-99");
  spec.rolling = Rolling{2, 30};
  testing::expect_refused(ErrorCode::invalid_argument, "absolute positions", [&] { KvState{spec}; });
}

TEST(Transition, ALayerWithAWindowKeepsIt_WhileTheOneBesideItGrows) {
  KvSpec spec = small_spec(100, 16);
  spec.layers.push_back({1, 32, 20});
  KvState state(spec);
  append(state, 100);
  const auto held = [&](int layer) {
    std::int64_t rows = 0;
    const StateImage image = state.image();
    for (const PosRange& run : image.runs[static_cast<std::size_t>(layer)]) rows += run.size();
    return rows;
  };
  EXPECT_LE(held(1), 20 + 16 + 64);  // the window, a step, and what is left of a tile
  state.apply(Expand{3000});
  append(state, 1180);
  EXPECT_EQ(held(0), 1280);
  EXPECT_LE(held(1), 20 + 16 + 64);
  EXPECT_EQ(seen(state, 0), "0-1279");
  EXPECT_EQ(seen(state, 1), "1261-1279");
  state.apply(SetAttention{10});
  EXPECT_EQ(seen(state, 1), "1271-1279");
  state.apply(SetAttention{});
  EXPECT_EQ(seen(state, 0), "0-1279");
}

TEST(Transition, AGapThatWasClosedBefore_IsNotClosedTwice) {
  KvState state(small_spec());
  append(state, 100);
  state.apply(Drop{{10, 20}, true});
  state.apply(Drop{{5, 25}, true});
  EXPECT_EQ(seen(state), "0-4>20 25-99") << "neighbours, not 30 positions nearer";
  KvState other(small_spec());
  append(other, 100);
  other.apply(Drop{{10, 20}, true});
  other.apply(Drop{{12, 25}, true});
  EXPECT_EQ(seen(other), "0-9>15 25-99") << "only positions 20 to 24 were still there";
}

TEST(Transition, AStateWithoutAnyText_CanBeCutAndGoOn) {
  KvState state(small_spec());
  append(state, 50);
  state.apply(Drop{{0, 50}});
  EXPECT_EQ(state.rows(), 0);
  EXPECT_EQ(state.apply(Truncate{30}).rows_dropped, 0);
  append(state, 10);
  EXPECT_EQ(seen(state), "30-39");
}

TEST(Transition, RecordsOfARollingStateCountTheRowsThatItKeeps) {
  KvSpec spec = small_spec(300);
  spec.rolling = Rolling{4, 20};
  KvState state(spec);
  append(state, 100);
  EXPECT_EQ(state.rows(), 24);
  const TransitionRecord record = state.apply(Drop{{10, 90}});
  EXPECT_EQ(record.rows_kept, 14);
  EXPECT_EQ(record.rows_dropped, 10);
  EXPECT_EQ(state.rows(), 14);
}

// What a query sees must not depend on when a window gave its rows back, which depends on how the text was
// cut.
TEST(Transition, TextThatHasLeftAWindow_DoesNotComeBackWhenAGapIsClosed) {
  for (const std::int64_t chunk : {1, 7, 64, 80}) {
    KvSpec spec = small_spec(400, chunk);
    spec.layers.push_back({1, 32, 10});
    KvState state(spec);
    append(state, 74);
    state.apply(Drop{{68, 72}, true});
    EXPECT_EQ(seen(state, 1), "65-67>4 72-73") << chunk;
    EXPECT_EQ(seen(state, 0), "0-67>4 72-73") << chunk;
    append(state, 3);
    EXPECT_EQ(seen(state, 1), "65-67>4 72-76") << chunk << ": seen at 69 to 71";
    append(state, 2);
    EXPECT_EQ(seen(state, 1), "66-67>4 72-78") << chunk;
    EXPECT_EQ(refusal(state, Truncate{73}),
              "cannot truncate to 73 positions: a gap was closed at position 74, when a window had moved on; "
              "the smallest that works is 74");
  }
}

TEST(Transition, AWindowThatMovesOnBehindAClosedGap_GivesItsRowsBack) {
  KvSpec spec = small_spec(2000, 16);
  spec.layers = {{1, 32, std::nullopt}, {1, 32, 100}};
  KvState state(spec);
  append(state, 400);
  state.apply(Drop{{310, 390}, true});
  append(state, 400);
  std::int64_t held = 0;
  const StateImage image = state.image();
  for (const PosRange& run : image.runs[1]) held += run.size();
  EXPECT_LE(held, 100 + 16 + 64);
}

TEST(Transition, APlanForAnotherGenerationOfTheState_IsRefused) {
  KvState state(small_spec());
  append(state, 50);
  const TransitionPlan plan = state.plan(Truncate{40});
  append(state, 1);
  try {
    state.apply(plan);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "this plan to truncate was made before the state changed; plan again");
  }
  EXPECT_EQ(state.position(), 51);
}

TEST(Fork, SharesItsPastAndKeepsItsFutureToItself) {
  KvState parent(small_spec());
  append(parent, 100);
  KvState child = parent.fork();
  EXPECT_EQ(child.shared_bytes(), child.held_bytes());
  EXPECT_EQ(child.rows_of_head(0, 0, KvPart::keys, {0, 64}).data,
            parent.rows_of_head(0, 0, KvPart::keys, {0, 64}).data);
  append(child, 50);
  append(parent, 20);
  EXPECT_EQ(seen(child), "0-149");
  EXPECT_EQ(seen(parent), "0-119");
  parent.apply(Truncate{10});
  append(parent, 30, 1000);
  EXPECT_EQ(seen(child), "0-149");
}

// Once a fork owned the rows alone, it found in its new rows what its parent had written there.
TEST(Fork, ReadsZerosWhereAStateThatIsGoneHadWritten) {
  auto parent = std::make_unique<KvState>(small_spec());
  append(*parent, 100);
  KvState child = parent->fork();
  append(*parent, 50, 1000);
  parent.reset();
  KvState::Step step = child.begin(60);
  const auto spans = step.spans(0);
  ASSERT_EQ(*spans[0].back().first + spans[0].back().rows, 160);
  for (std::int64_t row = spans[0].back().rows - 60; row < spans[0].back().rows; ++row)
    EXPECT_EQ(testing::all_zero(spans[0].back().keys + row * spans[0].back().key_stride, 128), "") << row;
}

TEST(Fork, GivesBackWhatWasDroppedWhileItWasShared_WhenItIsAlone) {
  KvSpec spec = small_spec(10000);
  KvState state(spec);
  append(state, 4000);
  {
    const KvState other = state.fork();
    state.apply(Drop{{64, 3000}});
    append(state, 1);
  }
  append(state, 1);
  const std::byte* memory = state.rows_of_head(0, 0, KvPart::keys, {0, 64}).data;
  const auto resident = resident_bytes(memory, 3000 * 128);
  if (!resident) GTEST_SKIP() << "this system does not tell which pages are in memory";
  EXPECT_LE(*resident, std::size_t{64 * 128 + 2 * 4096});
}

TEST(Fork, OfAFork_IsAStateLikeAnyOther) {
  KvState first(small_spec());
  append(first, 70);
  KvState second = first.fork();
  append(second, 10, 100);
  KvState third = second.fork();
  append(third, 10);
  { const KvState gone = std::move(second); }
  append(first, 5);
  EXPECT_EQ(first.position(), 75);
  EXPECT_EQ(third.position(), 90);
  third.apply(Truncate{70});
  append(third, 30);
  EXPECT_EQ(seen(third), "0-99");
  EXPECT_EQ(seen(first), "0-74");
}

TEST(Fork, KeepsARowOnce_WhereItsValueLiesInItsKey) {
  KvSpec spec = small_spec(4000);
  spec.key_type = spec.value_type = DType::f16;
  KvState twice(spec);
  spec.layers[0].values_in_keys = true;
  KvState once(spec);
  append(twice, 2048);
  append(once, 2048);
  EXPECT_EQ(2 * once.held_bytes(), twice.held_bytes());
  EXPECT_EQ(2 * kept_bytes(once.spec(), 2048), kept_bytes(twice.spec(), 2048));
  KvState fork = once.fork();
  append(fork, 100);
  fork.apply(Truncate{2100});
  append(once, 3, 7000);
  EXPECT_EQ(seen(fork), "0-2099");
  fork.apply(Drop{{10, 30}, true});
  EXPECT_EQ(seen(fork), "0-9>20 30-2099");
  // With two types, or summaries of the past, there is a row of values.
  spec.value_type = DType::q8_0;
  EXPECT_FALSE(row_format(spec, spec.layers[0]).values_in_keys);
  KvState mixed(spec);
  append(mixed, 40);
  EXPECT_EQ(seen(mixed), "0-39");
}

}  // namespace
}  // namespace kvtide
