// checkpoints_test.cpp: a state goes back where windows have moved on and recurrent tensors were replaced.
#include "state/checkpoints.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/snapshot.h"
#include "tests/base/memory_files.h"
#include "tests/model/expect_refused.h"
#include "tests/state/filled_state.h"

namespace kvtide {
namespace {

using testing::expect_refused;
using testing::small_spec;

constexpr std::int64_t kEvery = 100;

// A layer that keeps everything, one with a window, and two recurrent tensors; or a rolling memory.
KvSpec windowed_spec() {
  KvSpec spec = small_spec(4000);
  spec.layers.push_back({1, 32, 50});
  spec.recurrent = {{"taps", DType::f32, {2}}, {"last", DType::f32, {1}}};
  spec.slack = 4;
  spec.checkpoints.every = kEvery;
  return spec;
}

KvSpec rolling_spec() {
  KvSpec spec = small_spec(80);
  spec.rolling = Rolling{4, 70};
  spec.checkpoints.every = kEvery;
  return spec;
}

void read(KvState& state, std::int64_t tokens, std::int64_t most = 64) {
  while (tokens > 0) {
    KvState::Step step = state.begin(std::min({tokens, most, state.step_room()}));
    testing::fill(step, state.spec());
    for (int layer = 0; layer < static_cast<int>(state.spec().layers.size()); ++layer) step.spans(layer);
    if (!state.recurrent().empty())
      for (std::int64_t t = step.first_carried(); t < step.tokens(); ++t) {
        const auto position = static_cast<float>(step.first() + t);
        const float taps[] = {position - 1, position}, last[] = {position};
        step.carry(0, t, std::as_bytes(std::span(taps)));
        step.carry(1, t, std::as_bytes(std::span(last)));
      }
    tokens -= step.tokens();
    step.commit();
  }
}

std::string carried(const KvState& state) {
  std::string text;
  for (std::size_t i = 0; i < state.recurrent().count(); ++i) {
    const auto bytes = state.recurrent().value(i);
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    for (std::size_t j = 0; j < bytes.size() / sizeof(float); ++j) text += cat(values[j], " ");
  }
  return text;
}

// What the next query sees and what is carried, against a state that never went further.
void expect_like_fresh(KvState& state, const KvSpec& spec) {
  KvState fresh(spec);
  if (state.position() > 0) read(fresh, state.position());
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer)
    EXPECT_EQ(testing::seen(state, layer), testing::seen(fresh, layer)) << "at " << state.position();
  EXPECT_EQ(carried(state), carried(fresh));
  EXPECT_EQ(state.rows(), fresh.rows());
}

TEST(Checkpoints, EveryLengthIsReachedButForFewerTokensThanTheDistance_AsIfNothingHadFollowed) {
  for (const KvSpec& spec : {windowed_spec(), rolling_spec()}) {
    KvState whole(spec);
    read(whole, 1234);
    for (Pos length = 0; length <= whole.position(); length += length < 1100 ? 37 : 1) {
      KvState state = whole.fork();
      const TransitionRecord record = state.apply(Truncate{length, true});
      EXPECT_EQ(state.position(), length - record.read_again);
      EXPECT_LT(record.read_again, kEvery);
      expect_like_fresh(state, spec);
      read(state, 300, 7);
      KvState fresh(spec);
      read(fresh, state.position());
      expect_like_fresh(state, spec);
      EXPECT_EQ(state.checkpoints(), fresh.checkpoints());
    }
  }
}

TEST(Checkpoints, AreAtTheSamePositionsForAllChunks) {
  for (const KvSpec& spec : {windowed_spec(), rolling_spec()}) {
    KvState wanted(spec);
    read(wanted, 777);
    EXPECT_EQ(wanted.checkpoints(), (std::vector<Pos>{100, 200, 300, 400, 500, 600, 700}));
    for (const std::int64_t chunk : {1, 3, 64}) {
      KvState state(spec);
      read(state, 777, chunk);
      EXPECT_EQ(state.checkpoints(), wanted.checkpoints());
    }
  }
}

TEST(Checkpoints, StayWithinTheirBudget_TheNewestCloseTogether_OlderOnesEverFurtherApart) {
  for (KvSpec spec : {windowed_spec(), rolling_spec()}) {
    KvSpec plain = spec;
    plain.checkpoints.every = 0;
    KvState without(plain);
    spec.checkpoints = {20, 20 * checkpoint_bytes(spec, {1000}) / 2};
    KvState state(spec);
    for (int i = 0; i < 150; ++i) {
      read(state, 20);
      read(without, 20);
      ASSERT_LE(state.checkpoint_bytes(), spec.checkpoints.budget);
      ASSERT_LE(state.held_bytes(), without.held_bytes() + spec.checkpoints.budget + 8 * 4096);
      ASSERT_LE(checkpoint_bytes(spec, state.checkpoints()), spec.checkpoints.budget);
    }
    const std::vector<Pos>& at = state.checkpoints();
    ASSERT_GE(at.size(), 6u);
    EXPECT_EQ(at.back(), 3000);
    EXPECT_EQ(at[at.size() - 2], 2980);
    // What is read again is a small share of what lies behind.
    for (std::size_t i = 1; i < at.size(); ++i)
      EXPECT_LE(at[i] - at[i - 1], std::max<Pos>(20, (3000 - at[i - 1]))) << at[i - 1] << " to " << at[i];
    EXPECT_GT(at.back() - at.front(), 20 * static_cast<Pos>(at.size() - 1)) << "there are gaps";
    Pos gaps[2] = {};  // the widest of the older and of the newer half
    for (std::size_t i = 1; i < at.size(); ++i) {
      Pos& widest = gaps[i > at.size() / 2];
      widest = std::max(widest, at[i] - at[i - 1]);
    }
    EXPECT_GT(gaps[0], gaps[1]);
    for (const Pos position : at) {
      KvState back = state.fork();
      EXPECT_EQ(back.apply(Truncate{position}).read_again, 0);
      expect_like_fresh(back, spec);
    }
  }
}

TEST(Checkpoints, ThoseWhoseRowsAreKeptForOthersStay) {
  KvSpec spec = rolling_spec();
  spec.checkpoints = {20, checkpoint_bytes(spec, {1000}) * 3};
  KvState state(spec);
  read(state, 3000);
  const std::vector<Pos>& at = state.checkpoints();
  for (Pos position = 1020; position < 3000; position += 20) {
    if (std::binary_search(at.begin(), at.end(), position)) continue;
    std::vector<Pos> with = at;
    with.insert(std::upper_bound(with.begin(), with.end(), position), position);
    EXPECT_GT(checkpoint_bytes(spec, with), checkpoint_bytes(spec, at)) << position << " would cost nothing";
  }
}

TEST(Checkpoints, OneCanBeAskedForAnywhere_AndABudgetThatHoldsNoneRefusesIt) {
  KvSpec spec = windowed_spec();
  spec.checkpoints.every = 0;
  KvState state(spec);
  EXPECT_TRUE(state.checkpoint());
  read(state, 333);
  EXPECT_TRUE(state.checkpoint());
  EXPECT_TRUE(state.checkpoint());
  read(state, 500);
  EXPECT_EQ(state.checkpoints(), (std::vector<Pos>{333}));
  expect_refused(ErrorCode::invalid_argument, "the smallest that works is 829, the nearest before it 333",
                 [&] { state.apply(Truncate{400}); });
  EXPECT_EQ(state.apply(Truncate{400, true}).read_again, 67);
  expect_like_fresh(state, spec);
  state.set_checkpoints({0, 100});
  EXPECT_EQ(state.checkpoints(), std::vector<Pos>());
  EXPECT_FALSE(state.checkpoint());
  EXPECT_EQ(KvState(small_spec()).checkpoint(), true);
}

TEST(Checkpoints, ABudgetThatShrinksGivesTheRowsBackInTheNextStep) {
  const KvSpec spec = windowed_spec();
  KvSpec plain = spec;
  plain.checkpoints.every = 0;
  KvState state(spec), without(plain);
  read(state, 1000);
  read(without, 1001);
  state.set_checkpoints({0, 0});
  read(state, 1);
  EXPECT_EQ(state.checkpoint_bytes(), 0);
  EXPECT_EQ(state.held_bytes(), without.held_bytes());
}

TEST(Checkpoints, AForkHasThemToo_AndNeitherDisturbsTheOther) {
  const KvSpec spec = windowed_spec();
  KvState state(spec);
  read(state, 650);
  KvState fork = state.fork();
  EXPECT_GT(fork.shared_bytes(), 0);
  state.apply(Truncate{130, true});
  expect_like_fresh(state, spec);
  read(state, 900);
  read(fork, 10);
  fork.apply(Truncate{420, true});
  EXPECT_EQ(fork.position(), 400);
  expect_like_fresh(fork, spec);
  expect_like_fresh(state, spec);
}

TEST(Checkpoints, ASnapshotBringsThemAlong_AndOneThatSaysAPositionItDoesNotHoldIsRefused) {
  for (const KvSpec& spec : {windowed_spec(), rolling_spec()}) {
    testing::MemoryFiles files;
    KvState state(spec);
    read(state, 1234);
    save_snapshot(files, "a.kv", state, {});
    Snapshot loaded = load_snapshot(files, "a.kv");
    EXPECT_EQ(loaded.state.checkpoints(), state.checkpoints());
    EXPECT_EQ(loaded.state.spec().checkpoints, spec.checkpoints);
    for (const Pos position : state.checkpoints()) {
      KvState back = loaded.state.fork();
      back.apply(Truncate{position});
      expect_like_fresh(back, spec);
    }
    StateImage image = state.image();
    image.checkpoints = {150};
    expect_refused(ErrorCode::invalid_argument, "the checkpoint at 150", [&] { KvState bad(image); });
    image.checkpoints = {200, 100};
    expect_refused(ErrorCode::invalid_argument, "out of order", [&] { KvState bad(image); });
  }
}

TEST(Checkpoints, TextThatWasDroppedTakesThoseBehindItAlong) {
  KvSpec spec = windowed_spec();
  spec.recurrent.clear();
  KvState state(spec);
  read(state, 950);
  KvState closed = state.fork();
  state.apply(Drop{{450, 470}});
  EXPECT_EQ(state.checkpoints(), (std::vector<Pos>{100, 200, 300, 400}));
  read(state, 200);
  EXPECT_FALSE(state.checkpoint());
  state.apply(Truncate{330, true});
  expect_like_fresh(state, spec);
  closed.apply(Drop{{450, 470}, true});
  EXPECT_EQ(closed.checkpoints(), std::vector<Pos>());
  testing::MemoryFiles files;
  save_snapshot(files, "a.kv", closed, {});
  load_snapshot(files, "a.kv");
}

TEST(Checkpoints, ThereAreNoneWhereEveryPositionIsReachedAnyway) {
  KvSpec spec = small_spec(1000);
  spec.checkpoints.every = 10;
  KvState state(spec);
  read(state, 500);
  EXPECT_EQ(state.checkpoints(), std::vector<Pos>());
  EXPECT_EQ(state.apply(Truncate{123, true}).read_again, 0);
}

}  // namespace
}  // namespace kvtide
