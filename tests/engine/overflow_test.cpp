#include "engine/overflow.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kvtide/generate.h"
#include "tests/engine/logits.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::expect_refused;
using testing::same_bits;

std::vector<TokenId> counted(int count) {
  std::vector<TokenId> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

class OverflowTest : public ::testing::Test {
 protected:
  static SessionOptions small(std::int64_t context) {
    SessionOptions options;
    options.threads = 1;
    options.context = context;
    options.prefill_chunk = 8;
    return options;
  }
  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model({}).build().bytes};
  const Model model_{file_.path()};
};

TEST(TokensToRefill, KeepsTheNewestHalf) {
  EXPECT_EQ(tokens_to_refill(counted(10), 10, 0), (std::vector<TokenId>{5, 6, 7, 8, 9}));
}

TEST(TokensToRefill, KeepsThePinnedOnesAndHalfOfWhatIsLeft) {
  EXPECT_EQ(tokens_to_refill(counted(10), 10, 3), (std::vector<TokenId>{0, 1, 2, 7, 8, 9}));
  EXPECT_EQ(tokens_to_refill(counted(12), 10, 8), (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 7, 11}));
}

TEST(TokensToRefill, RefusesToPinMoreThanLeavesRoom) {
  for (const std::int64_t pinned : {std::int64_t{-1}, std::int64_t{9}, std::int64_t{10}})
    expect_refused(ErrorCode::invalid_argument, "needs a context of at least",
                   [&] { tokens_to_refill(counted(10), 10, pinned); });
}

TEST(TokensToRefill, RefusesATextThatStillFits) {
  expect_refused(ErrorCode::invalid_argument, "9 tokens were read",
                 [] { tokens_to_refill(counted(9), 10, 0); });
}

TEST_F(OverflowTest, ARefilledSession_IsOneThatOnlyReadWhatWasKept) {
  const std::vector<TokenId> text = testing::random_tokens(20, 64, 3);
  const std::vector<TokenId> next = {7};
  Session session(model_, small(20));
  session.read(text);
  const Refill done = refill(session, 4);
  EXPECT_EQ(done.position, 20);
  EXPECT_EQ(done.kept, 12);
  EXPECT_EQ(done.dropped, 8);
  EXPECT_TRUE(session.logits().empty());
  session.read(next);

  std::vector<TokenId> kept(text.begin(), text.begin() + 4);
  kept.insert(kept.end(), text.end() - 8, text.end());
  kept.push_back(7);
  Session fresh(model_, small(20));
  fresh.read(kept);
  EXPECT_EQ(session.tokens(), kept);
  EXPECT_TRUE(same_bits(session.logits(), fresh.logits()));
}

TEST_F(OverflowTest, AnAnswerEndsWhereTheContextIsFull_UnlessSomethingMakesRoom) {
  GenerateOptions options;
  options.max_tokens = 10;
  Session stops(model_, small(20));
  stops.read(testing::random_tokens(15, 64, 6));
  const Generated cut = generate(stops, options);
  ASSERT_EQ(cut.reason, StopReason::context_full);
  EXPECT_EQ(cut.tokens.size(), 6u) << "the last one was chosen, and found no room";

  Session grows(model_, small(20));
  grows.read(testing::random_tokens(15, 64, 6));
  int asked = 0;
  options.make_room = [&] {
    ++asked;
    grows.apply(Expand{grows.context() + 2});
    return true;
  };
  const Generated whole = generate(grows, options);
  EXPECT_EQ(whole.reason, StopReason::max_tokens);
  ASSERT_EQ(whole.tokens.size(), 10u);
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(std::equal(cut.tokens.begin(), cut.tokens.end(), whole.tokens.begin()));
}

TEST_F(OverflowTest, NothingMakesRoomForAnAnswerThatIsOver) {
  Session session(model_, small(20));
  session.read(testing::random_tokens(20, 64, 3));
  GenerateOptions options;
  options.on_text = [](std::string_view) { return false; };
  options.make_room = [] {
    ADD_FAILURE() << "asked although the answer was stopped";
    return false;
  };
  const Generated stopped = generate(session, options);
  EXPECT_EQ(stopped.reason, StopReason::cancelled);
}

TEST_F(OverflowTest, ARollingSessionWritesBeyondItsContext) {
  SessionOptions options = small(12);
  options.rolling = Rolling{2, 10};
  Session session(model_, options);
  session.read(testing::random_tokens(9, 64, 3));
  GenerateOptions generating;
  generating.max_tokens = 30;
  EXPECT_EQ(generate(session, generating).reason, StopReason::max_tokens);
  EXPECT_EQ(session.position(), 39);
  EXPECT_EQ(session.rows(), 12);
  EXPECT_GT(session.room(), 1000000);
}

TEST_F(OverflowTest, TakingBackATokenOfARollingSession_TakesItsIdBackToo) {
  SessionOptions options = small(12);
  options.rolling = Rolling{2, 10};
  options.slack = 4;
  Session session(model_, options);
  session.read(testing::random_tokens(30, 64, 3));
  session.apply(Truncate{28});
  EXPECT_EQ(session.tokens().size(), 28u);
  EXPECT_TRUE(session.logits().empty());
}

}  // namespace
}  // namespace kvtide
