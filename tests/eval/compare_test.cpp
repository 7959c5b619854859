#include "eval/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/engine/logits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

SessionOptions keeps_everything() {
  SessionOptions o;
  o.context = 512;
  o.threads = 2;
  return o;
}
SessionOptions keeps_a_window() {
  SessionOptions o = keeps_everything();
  o.context = 32;
  o.rolling = Rolling{2, 30};
  o.prefill_chunk = 8;
  return o;
}

// One row of logits as log-probabilities, in double.
std::vector<double> log_probabilities(std::span<const float> row) {
  double sum = 0.0;
  for (const float x : row) sum += std::exp(static_cast<double>(x));
  std::vector<double> out;
  for (const float x : row) out.push_back(static_cast<double>(x) - std::log(sum));
  return out;
}

class CompareTest : public ::testing::Test {
 protected:
  const testing::TemporaryFile file_ = testing::sample_file();
  const Model model_{file_.path()};
  const std::vector<TokenId> text_ = testing::random_tokens(400, 64, 7);
  const std::vector<float> full_ = testing::all_logits(model_, keeps_everything(), text_);
  const std::vector<float> window_ = testing::all_logits(model_, keeps_a_window(), text_);

  std::span<const float> row(const std::vector<float>& logits, Pos position) const {
    return std::span(logits).subspan(static_cast<std::size_t>(position) * 64, 64);
  }
  // -ln p of the token at `target`.
  double nll(const std::vector<float>& logits, Pos target) const {
    return -log_probabilities(
        row(logits, target - 1))[static_cast<std::size_t>(text_[static_cast<std::size_t>(target)])];
  }
  Comparison both(const CompareOptions& options = {}) const {
    Session full(model_, keeps_everything()), window(model_, keeps_a_window());
    Session* sessions[] = {&full, &window};
    return compare(sessions, text_, options);
  }
};

TEST_F(CompareTest, Scores_AreThoseOfTheLogitsThatEachMemoryGivesByItself) {
  const Comparison comparison = both();
  for (const auto& [first, last] : {PosRange{0, 400}, PosRange{100, 300}}) {
    double nll_full = 0.0, nll_window = 0.0, kl = 0.0;
    std::vector<double> kls;
    std::int64_t agreed = 0, tokens = 0;
    for (Pos target = std::max<Pos>(1, first); target < last; ++target, ++tokens) {
      nll_full += nll(full_, target);
      nll_window += nll(window_, target);
      const auto p = log_probabilities(row(full_, target - 1)),
                 q = log_probabilities(row(window_, target - 1));
      double own = 0.0;
      for (std::size_t i = 0; i < 64; ++i) own += std::exp(p[i]) * (p[i] - q[i]);
      kl += own;
      kls.push_back(own);
      agreed += std::max_element(p.begin(), p.end()) - p.begin() ==
                std::max_element(q.begin(), q.end()) - q.begin();
    }
    const double n = static_cast<double>(tokens);
    const Score score = comparison.score(1, first, last), reference = comparison.score(0, first, last);
    EXPECT_EQ(score.tokens, tokens);
    EXPECT_NEAR(reference.ppl, std::exp(nll_full / n), 1e-4 * reference.ppl);
    EXPECT_NEAR(score.ppl, std::exp(nll_window / n), 1e-4 * score.ppl);
    EXPECT_NEAR(score.change.mean, (nll_window - nll_full) / n, 1e-5);
    EXPECT_NEAR(score.kl, kl / n, 1e-5);
    EXPECT_DOUBLE_EQ(score.agreement, static_cast<double>(agreed) / n);
    std::sort(kls.begin(), kls.end());
    EXPECT_NEAR(score.kl_p99, kls[static_cast<std::size_t>(0.99 * (n - 1.0))], 1e-5);
    EXPECT_GT(score.kl, 1e-4) << "the two memories should differ in this text";
  }
}

TEST_F(CompareTest, TheReference_DiffersFromItselfInNothing) {
  const Score score = both().score(0, 0, 400);
  EXPECT_EQ(score.kl, 0.0);
  EXPECT_EQ(score.agreement, 1.0);
  EXPECT_EQ(score.change.low, 0.0);
  EXPECT_EQ(score.change.high, 0.0);
}

TEST_F(CompareTest, Probes_AreMeasuredApartFromTheText) {
  CompareOptions options;
  options.probes = {{50, 60}, {390, 400}};
  options.score_from = 200;
  const Comparison comparison = both(options);
  EXPECT_EQ(comparison.score(1, 0, 400).tokens, 190);  // 200 to 390
  EXPECT_EQ(comparison.score(1, 0, 200).tokens, 0);
  double sum = 0.0;
  for (Pos target = 50; target < 60; ++target) sum += nll(window_, target);
  EXPECT_NEAR(comparison.probe(1, {50, 60}), sum / 10.0, 1e-5);
}

TEST_F(CompareTest, AProbeIsForeseen_WhenEveryTokenOfItIsTheLikeliest) {
  // A text whose last four tokens are what the model would write.
  std::vector<TokenId> text(text_.begin(), text_.begin() + 100);
  for (int i = 0; i < 4; ++i) {
    const auto logits = testing::all_logits(model_, keeps_everything(), text);
    const auto row_of_last = std::span(logits).last(64);
    text.push_back(
        static_cast<TokenId>(std::max_element(row_of_last.begin(), row_of_last.end()) - row_of_last.begin()));
  }
  Session session(model_, keeps_everything());
  Session* one[] = {&session};
  CompareOptions last;
  last.probes = {{100, 104}};
  EXPECT_TRUE(compare(one, text, last).foreseen(0, {100, 104}));
  text[102] = (text[102] + 1) % 64;
  session.clear();
  const Comparison other = compare(one, text, last);
  EXPECT_FALSE(other.foreseen(0, {100, 104}));
  EXPECT_TRUE(other.foreseen(0, {100, 102}));
}

TEST_F(CompareTest, Refusals_SayWhatWouldBeRight) {
  testing::expect_refused(ErrorCode::invalid_argument, "needs a session", [&] { compare({}, text_); });
  CompareOptions beyond;
  beyond.probes = {{398, 401}};
  testing::expect_refused(ErrorCode::invalid_argument,
                          "398 to 401 does not lie behind the first of 400 tokens", [&] { both(beyond); });
  CompareOptions stopped;
  stopped.progress = [](std::int64_t, std::int64_t) { return false; };
  testing::expect_refused(ErrorCode::cancelled, "stopped after 256 of 400", [&] { both(stopped); });
}

TEST(BlockBootstrap, OfTwoBlocks_RunsFromOneMeanToTheOther) {
  std::vector<float> values(256, 0.0f);
  std::fill(values.begin() + 128, values.end(), 1.0f);
  const Interval interval = block_bootstrap(values);
  EXPECT_EQ(interval.mean, 0.5);
  EXPECT_EQ(interval.low, 0.0);  // both blocks drawn are the first: a quarter of the rounds
  EXPECT_EQ(interval.high, 1.0);
}

TEST(BlockBootstrap, LeavesOutWhatIsNoNumber_AndGivesNothingForNothing) {
  const float nan = std::nanf("");
  const std::vector<float> values = {nan, 2.0f, nan, 4.0f, nan};
  const Interval interval = block_bootstrap(values, 1);
  EXPECT_EQ(interval.mean, 3.0);
  EXPECT_EQ(interval.low, 2.0);
  EXPECT_EQ(interval.high, 4.0);
  EXPECT_EQ(block_bootstrap(std::vector<float>{nan}).mean, 0.0);
  EXPECT_EQ(block_bootstrap({}).high, 0.0);
}

TEST(BlockBootstrap, OfIndependentBlocks_IsAsWideAsTheErrorOfTheirMean) {
  // Blocks of one value, drawn from a normal distribution of deviation 2: the mean of 400 has an error of
  // 0.1.
  std::mt19937 random(3);
  std::normal_distribution<float> normal(5.0f, 2.0f);
  std::vector<float> values(400);
  for (float& value : values) value = normal(random);
  const Interval interval = block_bootstrap(values, 1, 4000);
  EXPECT_NEAR(interval.mean, 5.0, 0.3);
  EXPECT_NEAR(interval.high - interval.low, 2 * 1.96 * 0.1, 0.05);
}

}  // namespace
}  // namespace kvtide
