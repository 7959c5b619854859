// The memory of a session as its user changes it: resized, forked, cut, saved and loaded.
#include <gtest/gtest.h>

#include "kvtide/error.h"
#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::expect_refused;
using testing::same_bits;

class SessionMemoryTest : public ::testing::Test {
 protected:
  static SessionOptions small() {
    SessionOptions options;
    options.threads = 1;
    options.context = 200;
    options.prefill_chunk = 64;
    return options;
  }
  static testing::SampleModel sample() {
    testing::SampleModel out;
    out.types = {DType::q8_0};
    return out;
  }

  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model(sample()).build().bytes};
  const Model model_{file_.path()};
  const std::vector<TokenId> text_ = testing::random_tokens(150, 64, 1);
};

// The fork was refused, since its options no longer held its window; and its chunks must still fit its
// scratch memory.
TEST_F(SessionMemoryTest, AForkOfACompactedMemory_IsASessionLikeAnyOther) {
  for (const bool rolls : {false, true}) {
    SessionOptions options = small();
    if (rolls) options.rolling = Rolling{4, 60};
    Session session(model_, options);
    session.read(std::span(text_).first(10));
    session.apply(Compact{12});
    Session fork = session.fork();
    EXPECT_EQ(fork.context(), 12);
    EXPECT_EQ(fork.options().prefill_chunk, 64);
    fork.apply(Expand{200});
    const auto got = all_logits(fork, std::span(text_).subspan(10));
    const auto wanted = all_logits(model_, options, text_);
    EXPECT_TRUE(same_bits(got, std::span(wanted).subspan(10 * 64))) << rolls;
    EXPECT_EQ(session.position(), 10);
  }
}

TEST_F(SessionMemoryTest, TakingBackTokensTakesBackTheirLogits) {
  SessionOptions options = small();
  options.rolling = Rolling{4, 30};
  options.slack = 5;
  Session session(model_, options);
  session.read(text_);
  session.apply(Truncate{147});
  EXPECT_TRUE(session.logits().empty());
  EXPECT_EQ(session.tokens(), std::vector<TokenId>(text_.begin(), text_.begin() + 147));
  session.read(std::span(text_).subspan(147));
  const auto wanted = all_logits(model_, options, text_);
  EXPECT_TRUE(same_bits(session.logits(), std::span(wanted).subspan(149 * 64)));
}

TEST_F(SessionMemoryTest, AFullSessionGoesOnAfterExpand_AndSaysBothNumbersBefore) {
  SessionOptions options = small();
  options.context = 100;
  Session session(model_, options);
  session.read(std::span(text_).first(100));
  expect_refused(ErrorCode::context_full, "100 of 100", [&] { session.read(std::span(text_).subspan(100)); });
  session.apply(Expand{150});
  session.read(std::span(text_).subspan(100));
  const auto wanted = all_logits(model_, small(), text_);
  EXPECT_TRUE(same_bits(session.logits(), std::span(wanted).subspan(149 * 64)));
  expect_refused(ErrorCode::invalid_argument, "cannot compact to 149 rows: 150 are in use",
                 [&] { session.apply(Compact{149}); });
}

TEST_F(SessionMemoryTest, AnAttentionScheduleIsTheSameWhateverTheChunksAndTheCapacity) {
  const auto run = [&](std::int64_t chunk, std::int64_t context) {
    SessionOptions options = small();
    options.prefill_chunk = chunk;
    options.context = context;
    Session session(model_, options);
    std::vector<float> all;
    const std::optional<std::int64_t> sizes[] = {std::nullopt, 16, 64, 5, std::nullopt, 1};
    for (std::size_t i = 0; i < 6; ++i) {
      session.apply(SetAttention{sizes[i]});
      const auto rows = all_logits(session, std::span(text_).subspan(i * 25, 25));
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  };
  const auto wanted = run(1, 150);
  EXPECT_TRUE(same_bits(run(64, 4096), wanted));
  EXPECT_TRUE(same_bits(run(7, 150), wanted));
  EXPECT_FALSE(same_bits(all_logits(model_, small(), text_), wanted)) << "the schedule matters";
}

}  // namespace
}  // namespace kvtide
