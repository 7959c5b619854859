// An attention size that adapts itself: what samples decide, and how a state keeps them.
#include "state/auto_attention.h"

#include <gtest/gtest.h>

#include "kvtide/error.h"
#include "tests/model/expect_refused.h"
#include "tests/state/filled_state.h"

namespace kvtide {
namespace {

using testing::expect_refused;
using testing::seen;

// Eight samples of each share: a block for every decision.
AutoAttentionLog blocks(const AutoAttention& range, const std::vector<std::int32_t>& shares, Pos begun = 0) {
  AutoAttentionLog log = begin_log(range, begun);
  for (const std::int32_t share : shares) log.samples.insert(log.samples.end(), 8, share);
  return log;
}

std::string told(const AutoAttentionLog& log) {
  std::string text;
  for (const AttentionChange& change : attention_changes(log))
    text += cat(text.empty() ? "" : ", ", change.before, " to ", change.size, " at ", change.position);
  return text;
}

TEST(AutoAttention, DoublesWhereMuchIsFarAwayAndHalvesWhereNextToNothingIs) {
  EXPECT_EQ(told(blocks({64, 4096}, {200000, 100000, 200000, 10000, 10000, 300000})),
            "64 to 128 at 256, 128 to 256 at 768, 256 to 128 at 1024, 128 to 64 at 1280, 64 to 128 at 1536");
}

TEST(AutoAttention, StaysInsideItsRange) {
  EXPECT_EQ(told(blocks({100, 300}, {500000, 500000, 500000, 500000, 0, 0, 0})),
            "100 to 200 at 256, 200 to 300 at 512, 300 to 150 at 1280, 150 to 100 at 1536");
}

TEST(AutoAttention, DecidesByTheMeanOfABlockAlone) {
  AutoAttentionLog log = begin_log({64, 4096}, 0);
  log.samples = {1000000, 0, 0, 0, 0, 0, 0, 200000};
  EXPECT_EQ(told(log), "") << "150,000 is not above 150,000";
  log.samples[3] = 8;
  EXPECT_EQ(told(log), "64 to 128 at 256");
  log.samples.pop_back();
  EXPECT_EQ(told(log), "") << "the block is not full";
}

// Nothing lies beyond a size that covers the whole text, and its far half is empty whatever the text looks
// at.
TEST(AutoAttention, LeavesASizeThatTheTextDoesNotFillAsItIs) {
  EXPECT_EQ(told(blocks({512, 4096}, {0, 500000, 500000, 0, 0})), "512 to 1024 at 512, 1024 to 512 at 1024");
}

TEST(AutoAttention, BegunInTheMiddleWaitsForAWholeBlock) {
  AutoAttentionLog log = begin_log({64, 4096}, 300);
  EXPECT_EQ(log.first, 9);
  log.samples.assign(7, 500000);  // positions 319 to 511
  EXPECT_EQ(told(log), "");
  log.samples.insert(log.samples.end(), 8, 500000);
  EXPECT_EQ(told(log), "64 to 128 at 768");
  EXPECT_EQ(samples_at(log, 300), 0);
  EXPECT_EQ(samples_at(log, 319), 0);
  EXPECT_EQ(samples_at(log, 320), 1);
}

TEST(AutoAttention, NeedsARangeThatMakesSense) {
  for (const AutoAttention range : {AutoAttention{0, 10}, AutoAttention{11, 10}, AutoAttention{-1, -1}})
    expect_refused(ErrorCode::invalid_argument, "smallest", [&] { begin_log(range, 0); });
}

class AdaptingState : public ::testing::Test {
 protected:
  AdaptingState() { state_.apply(SetAttention{{}, AutoAttention{8, 64}}); }

  // Appends with the same answer for every sample; the number of samples that were asked for.
  static std::int64_t append(KvState& state, std::int64_t tokens, std::int32_t share) {
    std::int64_t asked = 0;
    while (tokens > 0) {
      KvState::Step step = state.begin(std::min(tokens, state.step_room()));
      testing::fill(step, state.spec());
      asked += static_cast<std::int64_t>(step.sampled().size());
      step.measured(std::vector<std::int32_t>(step.sampled().size(), share));
      tokens -= step.tokens();
      step.commit();
    }
    return asked;
  }

  KvState state_{testing::small_spec(4000, 300)};
};

TEST_F(AdaptingState, SeesWhatItsSamplesSay_FromTheDecisionOn) {
  EXPECT_EQ(append(state_, 255, 400000), 7);
  EXPECT_EQ(seen(state_), "248-254");  // and its own
  EXPECT_EQ(append(state_, 1, 400000), 1);
  EXPECT_EQ(seen(state_), "241-255");
  append(state_, 256, 0);
  EXPECT_EQ(seen(state_), "505-511");
}

TEST_F(AdaptingState, TakesNoStepAcrossADecision) {
  EXPECT_EQ(state_.step_room(), 256);
  append(state_, 100, 0);
  EXPECT_EQ(state_.step_room(), 156);
  expect_refused(ErrorCode::invalid_argument, "1 to 156 tokens, not 157", [&] { state_.begin(157); });
  state_.apply(SetAttention{{40}});
  EXPECT_EQ(state_.step_room(), 300);
}

TEST_F(AdaptingState, GoesBackToWhatItWas_WhenPositionsAreTakenBack) {
  append(state_, 600, 400000);
  EXPECT_EQ(state_.attention_size(), 32);
  state_.apply(Truncate{511});
  EXPECT_EQ(state_.attention_size(), 16);
  EXPECT_EQ(state_.adapting()->samples.size(), 15u);
  append(state_, 1, 0);  // seven of the block's eight samples are still the old ones
  EXPECT_EQ(state_.attention_size(), 32);
  state_.apply(Truncate{300});
  append(state_, 212, 0);
  EXPECT_EQ(state_.attention_size(), 8)
      << "one sample of the eight is an old one, of 400,000: 50,000 on average";
}

TEST_F(AdaptingState, IsForkedWithItsSamples) {
  append(state_, 500, 400000);
  KvState fork = state_.fork();
  append(fork, 12, 0);
  append(state_, 12, 400000);
  EXPECT_EQ(fork.attention_size(), 32);
  EXPECT_EQ(state_.attention_size(), 32);
  EXPECT_NE(*fork.adapting(), *state_.adapting());
}

TEST_F(AdaptingState, BeginsAnewWhenItForgets) {
  append(state_, 600, 400000);
  state_.clear();
  EXPECT_EQ(state_.attention_size(), 8);
  EXPECT_TRUE(state_.adapting()->samples.empty());
  append(state_, 256, 400000);
  EXPECT_EQ(state_.attention_size(), 16);
}

TEST_F(AdaptingState, CountsWhatNobodyMeasuredAsNothing) {
  append(state_, 512, 400000);
  while (state_.position() < 768) {
    KvState::Step step = state_.begin(32);
    testing::fill(step, state_.spec());
    step.commit();
  }
  EXPECT_EQ(state_.attention_size(), 16);
}

TEST_F(AdaptingState, IsAnImageAndBack_AndImagesThatContradictThemselvesAreRefused) {
  append(state_, 600, 400000);
  const StateImage image = state_.image();
  const KvState back(image);
  EXPECT_EQ(back.adapting(), state_.adapting());
  EXPECT_EQ(back.attention_size(), 32);

  StateImage wrong = image;
  wrong.attention_size = 16;
  expect_refused(ErrorCode::invalid_argument, "not what its samples say", [&] { KvState{wrong}; });
  wrong = image;
  wrong.adapting->samples.pop_back();
  expect_refused(ErrorCode::invalid_argument, "do not belong to position 600", [&] { KvState{wrong}; });
  wrong = image;
  wrong.adapting->samples[0] = kWholeShare + 1;
  expect_refused(ErrorCode::invalid_argument, "millionths", [&] { KvState{wrong}; });
}

TEST(AutoAttentionTransition, IsRefusedWhereItMakesNoSense) {
  KvState state(testing::small_spec());
  const auto refusal = [&](const SetAttention& t) { return state.plan(t).refusal(); };
  EXPECT_NE(refusal({{}, AutoAttention{9, 8}}).find("from 9 to 8"), std::string::npos);
  EXPECT_NE(refusal({{5}, AutoAttention{1, 8}}).find("either"), std::string::npos);
  KvSpec windows = testing::small_spec();
  windows.layers[0].window = 10;
  EXPECT_NE(KvState(windows).plan(SetAttention{{}, AutoAttention{1, 8}}).refusal().find("window of its own"),
            std::string::npos);
  KvSpec rolls = testing::small_spec();
  rolls.rolling = Rolling{2, 30};
  KvState rolling(rolls);
  rolling.apply(SetAttention{{}, AutoAttention{16, 1000}});
  EXPECT_EQ(rolling.adapting()->range, (AutoAttention{16, 30})) << "nothing lies beyond the window";
}

}  // namespace
}  // namespace kvtide
