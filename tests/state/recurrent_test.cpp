// recurrent_test.cpp: tensors without a sequence axis that follow the tokens of a step.
#include "state/recurrent.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/model/expect_refused.h"
#include "tests/state/filled_state.h"

namespace kvtide {
namespace {

using testing::expect_refused;

KvSpec carrying_spec(std::int64_t slack) {
  KvSpec spec = testing::small_spec();
  spec.recurrent = {{"taps", DType::f32, {2}}, {"last", DType::f32, {1}}};
  spec.slack = slack;
  return spec;
}

// Tokens whose "taps" are the two newest positions and whose "last" is the newest.
void read(KvState& state, std::int64_t tokens) {
  KvState::Step step = state.begin(tokens);
  testing::fill(step, state.spec());
  for (std::int64_t t = step.first_carried(); t < tokens; ++t) {
    const auto position = static_cast<float>(step.first() + t);
    const float taps[] = {position - 1, position}, last[] = {position};
    step.carry(0, t, std::as_bytes(std::span(taps)));
    step.carry(1, t, std::as_bytes(std::span(last)));
  }
  step.commit();
}

std::vector<float> held(const KvState& state, std::size_t tensor) {
  const auto bytes = state.recurrent().value(tensor);
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  return {values, values + bytes.size() / sizeof(float)};
}

TEST(Recurrent, AStepOfManyTokensCanBeTakenBackTokenByToken_AsFarAsTheSlackGoes) {
  for (std::int64_t back = 0; back <= 4; ++back) {
    KvState state(carrying_spec(4));
    read(state, 30);
    EXPECT_EQ(held(state, 0), (std::vector<float>{28, 29}));
    state.apply(Truncate{30 - back});
    const auto newest = static_cast<float>(29 - back);
    EXPECT_EQ(held(state, 0), (std::vector<float>{newest - 1, newest}));
    EXPECT_EQ(held(state, 1), (std::vector<float>{newest}));
    read(state, 3);
    EXPECT_EQ(held(state, 0), (std::vector<float>{newest + 2, newest + 3}));
  }
}

TEST(Recurrent, MoreThanTheSlackIsRefusedWithTheReason_AndChangesNothing) {
  KvState state(carrying_spec(4));
  read(state, 30);
  expect_refused(ErrorCode::invalid_argument,
                 "cannot truncate to 25 positions: tensor 'taps' of that position was not kept (a slack of 4 "
                 "keeps that many); the smallest that works is 26",
                 [&] { state.apply(Truncate{25}); });
  EXPECT_EQ(state.position(), 30);
  EXPECT_EQ(held(state, 0), (std::vector<float>{28, 29}));
  state.apply(Truncate{0});
  EXPECT_EQ(held(state, 0), (std::vector<float>{0, 0}));
}

TEST(Recurrent, StepsShorterThanTheSlackAddUp) {
  KvState state(carrying_spec(4));
  for (int i = 0; i < 10; ++i) read(state, 1);
  read(state, 2);
  state.apply(Truncate{8});
  EXPECT_EQ(held(state, 0), (std::vector<float>{6, 7}));
  EXPECT_FALSE(state.plan(Truncate{7}));
  for (int i = 0; i < 4; ++i) read(state, 1);
  EXPECT_TRUE(state.plan(Truncate{8}));
}

TEST(Recurrent, AStepThatIsDroppedLeavesNothing) {
  KvState state(carrying_spec(4));
  read(state, 5);
  {
    KvState::Step step = state.begin(2);
    testing::fill(step, state.spec());
    const float taps[] = {70, 71};
    step.carry(0, 1, std::as_bytes(std::span(taps)));
  }
  EXPECT_EQ(held(state, 0), (std::vector<float>{3, 4}));
  read(state, 1);
  EXPECT_EQ(held(state, 0), (std::vector<float>{4, 5}));
}

TEST(Recurrent, ATensorThatAStepSaysNothingOfStaysAsItWas) {
  KvState state(carrying_spec(4));
  read(state, 5);
  KvState::Step step = state.begin(1);
  testing::fill(step, state.spec());
  const float last[] = {99};
  step.carry(1, 0, std::as_bytes(std::span(last)));
  step.commit();
  EXPECT_EQ(held(state, 0), (std::vector<float>{3, 4}));
  EXPECT_EQ(held(state, 1), (std::vector<float>{99}));
}

TEST(Recurrent, NumbersThatAreNotFiniteAndWrongSizesAreRefused) {
  KvState state(carrying_spec(0));
  KvState::Step step = state.begin(1);
  const float broken[] = {1.0f, std::numeric_limits<float>::quiet_NaN()};
  expect_refused(ErrorCode::numeric, "tensor 'taps' would hold NaN or infinity",
                 [&] { step.carry(0, 0, std::as_bytes(std::span(broken))); });
  expect_refused(ErrorCode::invalid_argument, "tensor 'last' has 4 bytes and cannot be resized; 8 were given",
                 [&] { step.carry(1, 0, std::as_bytes(std::span(broken))); });
}

TEST(Recurrent, BytesOfEveryValueThatIsKeptAreCounted) {
  KvState state(carrying_spec(4));
  EXPECT_EQ(state.held_bytes(), 12);
  read(state, 1);
  const std::int64_t page = state.held_bytes() - 24;
  EXPECT_GT(page, 0);
  for (int i = 0; i < 6; ++i) read(state, 1);
  EXPECT_EQ(state.held_bytes() - page, 5 * 12);
}

}  // namespace
}  // namespace kvtide
