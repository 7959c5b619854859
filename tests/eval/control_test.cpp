#include "eval/control.h"

#include <gtest/gtest.h>

#include "eval/trial.h"
#include "tests/engine/logits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

// 2 layers, 2 KV heads of 32: a position takes 2 x 2 x 2 x 32 x 2 = 512 bytes in f16 and 272 in q8_0.
testing::SampleModel sample() {
  testing::SampleModel out;
  out.head_dim = 32;
  out.context = 1000;
  return out;
}

class ControlTest : public ::testing::Test {
 protected:
  const testing::TemporaryFile file_ = testing::sample_file(sample());
  const Model model_{file_.path()};
  static SessionOptions procedural() {
    SessionOptions o;
    o.threads = 1;
    o.exact = true;
    o.procedural.emplace();
    o.procedural->window = 64;
    o.procedural->block = 32;
    o.procedural->rows = 8;
    o.procedural->summaries = 2;
    return o;
  }
};

TEST_F(ControlTest, TheFullCache_KeepsEverything_AsLongAsTheModelWasTrainedForIt) {
  const SessionOptions full = full_cache(model_, procedural(), 1000);
  EXPECT_EQ(full.context, 1000);
  EXPECT_FALSE(full.rolling || full.procedural);
  EXPECT_EQ(full.key_type, ElementType::f16);
  EXPECT_TRUE(full.exact);  // the arithmetic is the policy's
  EXPECT_EQ(full.threads, 1);
  EXPECT_EQ(most_kv_bytes(model_, full, 1000), 1000 * 512);
  const SessionOptions longer = full_cache(model_, procedural(), 1001);
  EXPECT_EQ(longer.rolling, (Rolling{4, 996}));
  EXPECT_EQ(most_kv_bytes(model_, longer, 100000), 1000 * 512);
}

TEST_F(ControlTest, AWindowOfBytes_IsTheLongestThatTheyPayFor_InTheTypeOfOldRows) {
  const SessionOptions window = window_of_bytes(model_, procedural(), 272 * 300 + 271, 900);
  EXPECT_EQ(window.rolling, (Rolling{4, 296}));
  EXPECT_EQ(window.key_type, ElementType::q8_0);
  EXPECT_EQ(most_kv_bytes(model_, window, 900), 300 * 272);
  SessionOptions half = procedural();
  half.procedural->row_type = RowType::f16;
  EXPECT_EQ(window_of_bytes(model_, half, 512 * 300, 900).rolling, (Rolling{4, 296}));
  EXPECT_EQ(window_of_bytes(model_, half, 512 * 300, 900).key_type, ElementType::f16);
}

TEST_F(ControlTest, AWindowOfBytes_IsNeverLongerThanTheTextOrTheTrainedContext_NorEmpty) {
  EXPECT_EQ(window_of_bytes(model_, procedural(), 1 << 30, 500).rolling, (Rolling{4, 496}));
  EXPECT_EQ(window_of_bytes(model_, procedural(), 1 << 30, 50000).rolling, (Rolling{4, 996}));
  EXPECT_EQ(window_of_bytes(model_, procedural(), 1, 500).rolling, (Rolling{4, 16}));
}

TEST_F(ControlTest, MostBytesOfAProceduralMemory_AreWhatASessionStates_AndNeverExceeded) {
  SessionOptions options = procedural();
  options.procedural->budget_for = 900;
  Session session(model_, options);
  const std::int64_t most = most_kv_bytes(model_, procedural(), 900);
  EXPECT_EQ(most, session.procedural_plan()->total());
  session.read(testing::random_tokens(900, 64, 1));
  EXPECT_LE(session.procedural_counts()->bytes_peak, most);
  EXPECT_GT(session.procedural_counts()->bytes_peak, most / 4);
}

TEST(DistinctRuns, CountsRunsThatDiffer) {
  const std::vector<TokenId> tokens = {1, 2, 1, 2, 1, 2};
  EXPECT_DOUBLE_EQ(distinct_runs(tokens, 1), 2.0 / 6);
  EXPECT_DOUBLE_EQ(distinct_runs(tokens, 2), 2.0 / 5);
  EXPECT_DOUBLE_EQ(distinct_runs(tokens, 3), 2.0 / 4);
  EXPECT_DOUBLE_EQ(distinct_runs(tokens, 7), 1.0);
  EXPECT_DOUBLE_EQ(distinct_runs(std::vector<TokenId>{3, 4, 5}, 1), 1.0);
}

TEST_F(ControlTest, ATrial_ReportsTheMemoryAndTheMovesOfTheResidentSet_OnceTheMemoryIsFull) {
  SessionOptions options = procedural();
  options.procedural.reset();
  options.rolling = Rolling{4, 60};
  options.context = 64;
  options.prefill_chunk = 16;
  Session session(model_, options);
  std::int64_t calls = 0;
  double share = 0.0;
  TrialOptions trial_options;
  trial_options.continuation = 32;
  // Grows while the window fills, then moves by 100 bytes up and down.
  trial_options.resident = [&] { return ++calls <= 4 ? calls * 1000000 : 5000000 + (calls % 2) * 100; };
  trial_options.progress = [&](double now) {
    EXPECT_GE(now, share);
    share = now;
    return true;
  };
  const Trial trial = try_memory(session, testing::random_tokens(400, 64, 2), trial_options);
  EXPECT_EQ(session.position(), 432);
  EXPECT_EQ(trial.kv_bytes, session.memory().kv);
  EXPECT_GE(trial.kv_peak, trial.kv_bytes);
  EXPECT_GT(trial.filled_at, 64);
  EXPECT_LE(trial.filled_at, 200);  // the window, steps of 16 and whole pages
  EXPECT_EQ(trial.rss_swing, 100);
  EXPECT_GT(trial.prefill_tok_s, 0.0);
  EXPECT_GT(trial.decode_tok_s, 0.0);
  EXPECT_EQ(trial.seal_ms_token, 0.0);
  TrialOptions quiet;
  quiet.continuation = 32;
  // Greedy and deterministic: the same continuation again.
  const Trial again = try_memory(session, testing::random_tokens(400, 64, 2), quiet);
  EXPECT_EQ(again.distinct_3, trial.distinct_3);
  trial_options.progress = [](double) { return false; };
  testing::expect_refused(ErrorCode::cancelled, "stopped",
                          [&] { try_memory(session, testing::random_tokens(400, 64, 2), trial_options); });
}

}  // namespace
}  // namespace kvtide
