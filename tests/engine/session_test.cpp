#include "kvtide/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/base/together.h"
#include "tests/engine/logits.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::expect_refused;
using testing::same_bits;

// One small quantised model for all tests of this file.
class SessionTest : public ::testing::Test {
 protected:
  static SessionOptions small(std::int64_t chunk = 16) {
    SessionOptions options;
    options.threads = 2;
    options.context = 100;
    options.prefill_chunk = chunk;
    return options;
  }
  static testing::SampleModel sample() {
    testing::SampleModel out;
    out.types = {DType::q8_0, DType::q4_1};
    return out;
  }

  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model(sample()).build().bytes};
  const Model model_{file_.path()};
  const std::vector<TokenId> text_ = testing::random_tokens(60, 64, 1);
  const std::vector<float> wanted_ = all_logits(model_, small(), text_);

  std::span<const float> row(std::size_t position) const {
    return std::span(wanted_).subspan(position * 64, 64);
  }
};

TEST_F(SessionTest, FillsInItsOptions) {
  const Session session(model_);
  EXPECT_EQ(session.context(), 4096);
  EXPECT_EQ(session.options().context, 4096);
  EXPECT_GE(session.options().threads, 1);
  EXPECT_EQ(session.options().prefill_chunk, 512);
  EXPECT_EQ(Session(model_, small(5000)).options().prefill_chunk, 100) << "no larger than the context";
}

TEST_F(SessionTest, RefusesOptionsOutOfRange) {
  const auto refused = [&](auto change, const std::string& says,
                           ErrorCode code = ErrorCode::invalid_argument) {
    SessionOptions options = small();
    change(options);
    expect_refused(code, says, [&] { Session session(model_, options); });
  };
  refused([](auto& o) { o.context = -1; }, "the context must be between 1 and 2^31 tokens, not -1");
  refused([](auto& o) { o.context = std::int64_t{1} << 32; },
          "the context must be between 1 and 2^31 tokens");
  refused([](auto& o) { o.prefill_chunk = 0; },
          "the prefill chunk must be between 1 and 65536 tokens, not 0");
  refused([](auto& o) { o.prefill_chunk = 65537; },
          "the prefill chunk must be between 1 and 65536 tokens, not 65537");
  refused([](auto& o) { o.key_type = ElementType::i32; },
          "keys and values are kept as f32, f16, q8_0 or q4_0, not i32");
  refused([](auto& o) { o.threads = -1; }, "threads must be between 1 and 256, not -1");
  refused([](auto& o) { o.threads = 257; }, "threads must be between 1 and 256, not 257");
  refused([](auto& o) { o.kernels = "sse9"; }, "no kernels named 'sse9'", ErrorCode::unsupported);
}

TEST_F(SessionTest, HasNoLogitsBeforeTheFirstTokenNorWhenNoneAreWanted) {
  Session session(model_, small());
  EXPECT_TRUE(session.logits().empty());
  ReadOptions read;
  read.need_logits = false;
  session.read(text_, read);
  EXPECT_EQ(session.position(), 60);
  EXPECT_TRUE(session.logits().empty());
}

TEST_F(SessionTest, GivesTheSameLogitsHoweverTheTextIsCutIntoReads) {
  testing::Rng rng(5);
  for (int turn = 0; turn < 8; ++turn) {
    Session session(model_, small());
    for (std::size_t at = 0; at < text_.size();) {
      const auto n = std::min<std::size_t>(text_.size() - at, static_cast<std::size_t>(1 + rng.below(25)));
      ReadOptions read;
      read.need_logits = turn % 2 == 0 || at + n == text_.size();
      session.read(std::span(text_).subspan(at, n), read);
      at += n;
      ASSERT_EQ(session.logits().empty(), !read.need_logits);
      if (read.need_logits) {
        ASSERT_TRUE(same_bits(session.logits(), row(at - 1)));
      }
    }
    EXPECT_TRUE(same_bits(session.logits(), row(59)));
  }
}

TEST_F(SessionTest, ReadingNothingChangesNothing) {
  Session session(model_, small());
  session.read({});
  EXPECT_EQ(session.position(), 0);
  session.read(std::span(text_).first(10));
  session.read({});
  EXPECT_EQ(session.position(), 10);
  EXPECT_TRUE(same_bits(session.logits(), row(9)));
}

TEST_F(SessionTest, CancelledInProgress_KeepsWholeChunks_AndCanGoOn) {
  for (const std::int64_t stop_at : {16, 32, 48}) {
    Session session(model_, small());
    std::vector<std::int64_t> reports;
    ReadOptions read;
    read.progress = [&](std::int64_t done) {
      reports.push_back(done);
      return done < stop_at;
    };
    expect_refused(ErrorCode::cancelled, "stopped after " + std::to_string(stop_at) + " of 60 tokens",
                   [&] { session.read(text_, read); });
    EXPECT_EQ(session.position(), stop_at);
    EXPECT_EQ(reports.back(), stop_at);
    EXPECT_TRUE(session.logits().empty()) << "not the logits of an earlier text";
    session.read(std::span(text_).subspan(static_cast<std::size_t>(stop_at)));
    EXPECT_TRUE(same_bits(session.logits(), row(59)));
  }
}

TEST_F(SessionTest, ReportsProgressAfterEveryChunk) {
  Session session(model_, small());
  std::vector<std::int64_t> reports;
  ReadOptions read;
  read.progress = [&](std::int64_t done) {
    reports.push_back(done);
    return true;
  };
  session.read(text_, read);
  EXPECT_EQ(reports, (std::vector<std::int64_t>{16, 32, 48, 60}));
}

TEST_F(SessionTest, RefusesATextThatDoesNotFit_BeforeAnythingIsRead) {
  Session session(model_, small());
  session.read(text_);
  expect_refused(ErrorCode::context_full, "it holds 60 of 100 tokens and 60 more do not fit",
                 [&] { session.read(text_); });
  EXPECT_EQ(session.position(), 60);
  EXPECT_TRUE(same_bits(session.logits(), row(59))) << "the logits of the text it holds";
  session.read(std::span(text_).first(40));
  EXPECT_EQ(session.position(), 100);
  expect_refused(ErrorCode::context_full, "it holds 100 of 100 tokens and 1 more do not fit",
                 [&] { session.read(std::span(text_).first(1)); });
}

TEST_F(SessionTest, RefusesATokenOutsideTheVocabulary_BeforeAnythingIsRead) {
  Session session(model_, small());
  session.read(std::span(text_).first(10));
  for (const TokenId bad :
       {64, -1, std::numeric_limits<TokenId>::max(), std::numeric_limits<TokenId>::min()}) {
    std::vector<TokenId> tokens = text_;
    tokens[59] = bad;  // in the last chunk
    expect_refused(ErrorCode::invalid_argument,
                   "token id " + std::to_string(bad) + " is outside the vocabulary of 64",
                   [&] { session.read(tokens); });
    EXPECT_EQ(session.position(), 10);
    EXPECT_TRUE(same_bits(session.logits(), row(9)));
  }
}

TEST_F(SessionTest, ForgetsAndStartsAnew) {
  Session session(model_, small());
  session.read(testing::random_tokens(90, 64, 2));
  EXPECT_GT(session.memory().kv, 0);
  session.clear();
  EXPECT_EQ(session.position(), 0);
  EXPECT_EQ(session.memory().kv, 0);
  EXPECT_TRUE(session.logits().empty());
  EXPECT_TRUE(same_bits(all_logits(session, text_), wanted_));
}

TEST_F(SessionTest, ThrownOutOfByItsCaller_HoldsWholeChunks) {
  Session session(model_, small());
  ReadOptions read;
  read.logits_from = 20;
  read.on_logits = [](Pos pos, std::span<const float>) {
    if (pos == 40) throw std::runtime_error("enough");
  };
  EXPECT_THROW(session.read(text_, read), std::runtime_error);
  EXPECT_EQ(session.position() % 16, 0);
  session.read(std::span(text_).subspan(static_cast<std::size_t>(session.position())));
  EXPECT_TRUE(same_bits(session.logits(), row(59)));
}

TEST_F(SessionTest, IsNotInfluencedByAnotherOfTheSameModel) {
  const auto other_text = testing::random_tokens(60, 64, 3);
  const auto other_wanted = all_logits(model_, small(), other_text);
  Session a(model_, small()), b(model_, small());
  std::vector<float> got_a, got_b;
  for (std::size_t at = 0; at < 60; at += 5) {
    const auto rows_a = all_logits(a, std::span(text_).subspan(at, 5));
    const auto rows_b = all_logits(b, std::span(other_text).subspan(at, 5));
    got_a.insert(got_a.end(), rows_a.begin(), rows_a.end());
    got_b.insert(got_b.end(), rows_b.begin(), rows_b.end());
  }
  EXPECT_TRUE(same_bits(got_a, wanted_));
  EXPECT_TRUE(same_bits(got_b, other_wanted));
}

TEST_F(SessionTest, IsNotInfluencedByOthersThatRunAtTheSameTime) {
  std::vector<std::vector<float>> got(3);
  std::vector<std::function<void()>> callers;
  for (auto& rows : got) callers.emplace_back([this, &rows] { rows = all_logits(model_, small(7), text_); });
  testing::run_together("sessions of one model", callers);
  for (const auto& rows : got) EXPECT_TRUE(same_bits(rows, wanted_));
}

TEST_F(SessionTest, CanBeMoved) {
  Session first(model_, small());
  first.read(std::span(text_).first(30));
  Session second = std::move(first);
  EXPECT_EQ(second.position(), 30);
  second.read(std::span(text_).subspan(30));
  EXPECT_TRUE(same_bits(second.logits(), row(59)));
}

TEST_F(SessionTest, StatesItsMemory) {
  Session session(model_, small());
  EXPECT_EQ(session.memory().kv, 0);
  EXPECT_EQ(session.memory().weights, model_.weights_bytes());
  session.read(text_);
  // Two layers, keys and values of two heads of 16 f16 elements: 60 rows of 32 bytes are one page each.
  EXPECT_EQ(session.memory().kv, 2 * 2 * 2 * 4096);
  EXPECT_GT(session.memory().scratch, model_.vocabulary_bytes());
  EXPECT_LT(session.memory().scratch, 1 << 20);
}

}  // namespace
}  // namespace kvtide
