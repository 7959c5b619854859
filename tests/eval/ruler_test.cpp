#include "eval/ruler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kvtide/model.h"
#include "tests/engine/logits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

constexpr std::int64_t kLength = 1500;

class RulerTest : public ::testing::Test {
 protected:
  static testing::SampleModel sample() {
    testing::SampleModel out;
    out.words = 900;
    return out;
  }
  RulerSample make(RulerTask task, std::uint64_t seed = 1, std::int64_t length = kLength) const {
    return ruler_sample(tokenizer_, prose_, task, length, seed);
  }
  static std::vector<TokenId> part(const RulerSample& sample, const PosRange& range) {
    return {sample.tokens.begin() + range.first, sample.tokens.begin() + range.last};
  }

  const testing::TemporaryFile file_ = testing::sample_file(sample());
  const Model model_{file_.path()};
  const Tokenizer& tokenizer_ = model_.tokenizer();
  const std::vector<TokenId> prose_ = testing::random_tokens(3000, 60, 9);
};

TEST_F(RulerTest, EveryAnswerStandsInTheTextBeforeItIsAskedFor) {
  const std::size_t answers[] = {1, 1, 1, 1, 1, 1, 4, 4, 5, 10, 3, 3, 3};
  for (std::size_t i = 0; i < std::size(kRulerTasks); ++i) {
    const RulerSample sample = make(static_cast<RulerTask>(i));
    EXPECT_LE(static_cast<std::int64_t>(sample.tokens.size()), kLength) << kRulerTasks[i];
    EXPECT_GE(static_cast<std::int64_t>(sample.tokens.size()), kLength - 120) << kRulerTasks[i];
    ASSERT_EQ(sample.answers.size(), answers[i]) << kRulerTasks[i];
    EXPECT_EQ(sample.answers.back().last, static_cast<Pos>(sample.tokens.size()));
    Pos before = sample.question;
    for (const PosRange& range : sample.answers) {
      EXPECT_GE(range.first, before) << kRulerTasks[i];
      before = range.last;
      if (static_cast<RulerTask>(i) == RulerTask::arithmetic) continue;  // a sum stands nowhere
      const auto wanted = part(sample, range);
      const auto end = sample.tokens.begin() + sample.question;
      const auto found = std::search(sample.tokens.begin(), end, wanted.begin(), wanted.end());
      EXPECT_NE(found, end) << kRulerTasks[i];
    }
  }
}

TEST_F(RulerTest, InstructionsBeginTheText) {
  const RulerSample sample = make(RulerTask::instructions);
  for (const PosRange& range : sample.answers) {
    const auto wanted = part(sample, range);
    const auto early = sample.tokens.begin() + kLength / 10;
    EXPECT_NE(std::search(sample.tokens.begin(), early, wanted.begin(), wanted.end()), early);
  }
}

TEST_F(RulerTest, ASeedSaysItAll) {
  for (std::size_t i = 0; i < std::size(kRulerTasks); ++i) {
    const auto task = static_cast<RulerTask>(i);
    EXPECT_EQ(make(task, 3).tokens, make(task, 3).tokens) << kRulerTasks[i];
    EXPECT_NE(make(task, 3).tokens, make(task, 4).tokens) << kRulerTasks[i];
  }
}

TEST_F(RulerTest, RefusesWhatHasNoRoom) {
  EXPECT_THROW(make(RulerTask::multivalue, 1, 40), Error);
  EXPECT_THROW(make(RulerTask::single_2, 1, 5000), Error) << "more than the prose has";
  testing::SampleModel few = sample();
  few.words = 40;
  const testing::TemporaryFile file = testing::sample_file(few);
  const Model model(file.path());
  EXPECT_THROW(ruler_sample(model.tokenizer(), prose_, RulerTask::common, kLength, 1), Error);
}

TEST(SampleMean, HasAnIntervalOfItsSamples) {
  const double values[] = {1.0, 3.0, 1.0, 3.0};
  EXPECT_DOUBLE_EQ(mean_of(values).mean, 2.0);
  EXPECT_NEAR(mean_of(values).half_width, 1.96 * std::sqrt(4.0 / 3.0 / 4.0), 1e-12);
  EXPECT_EQ(mean_of(std::span(values).first(1)).half_width, 0.0);
}

}  // namespace
}  // namespace kvtide
