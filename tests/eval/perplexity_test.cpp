#include "eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/logits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;

SessionOptions options_of(std::int64_t context = 256) {
  SessionOptions o;
  o.context = context;
  o.threads = 2;
  return o;
}

// -ln p of every target of a text, from whole rows of logits, in double. nll[i]: of token i + 1.
std::vector<double> direct_nll(std::span<const float> logits, std::span<const TokenId> text) {
  const std::size_t vocab = logits.size() / text.size();
  std::vector<double> out;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    double sum = 0.0;
    for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[i * vocab + v]));
    out.push_back(std::log(sum) -
                  static_cast<double>(logits[i * vocab + static_cast<std::size_t>(text[i + 1])]));
  }
  return out;
}

struct Summary {
  double ppl, error;
};
// exp of the mean, and the error of the mean carried through the exponential.
Summary summary(const std::vector<double>& nll) {
  const auto n = static_cast<double>(nll.size());
  double mean = 0.0, variance = 0.0;
  for (const double x : nll) mean += x / n;
  for (const double x : nll) variance += (x - mean) * (x - mean) / (n - 1.0);
  return {std::exp(mean), std::exp(mean) * std::sqrt(variance / n)};
}

class PerplexityTest : public ::testing::TestWithParam<bool> {
 protected:
  static testing::SampleModel sample(bool add_bos) {
    testing::SampleModel out;
    out.types = {DType::q8_0};
    out.add_bos = add_bos;
    return out;
  }
  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model(sample(GetParam())).build().bytes};
  const Model model_{file_.path()};
  const std::vector<TokenId> text_ = testing::random_tokens(150, 64, 4);
};

TEST_P(PerplexityTest, ByChunksFollowsItsRule) {
  for (const std::int64_t n_ctx : {4, 5, 20, 33, 75}) {
    std::vector<double> scored;
    std::vector<double> running;
    const auto n = static_cast<std::size_t>(n_ctx);
    for (std::size_t at = 0; at + n <= text_.size(); at += n) {
      std::vector<TokenId> chunk(text_.begin() + static_cast<std::ptrdiff_t>(at),
                                 text_.begin() + static_cast<std::ptrdiff_t>(at + n));
      if (GetParam()) chunk[0] = 0;  // the vocabulary's BOS
      const auto nll = direct_nll(all_logits(model_, options_of(), chunk), chunk);
      // Targets n_ctx / 2 + 1 .. n_ctx - 1.
      scored.insert(scored.end(), nll.begin() + n_ctx / 2, nll.end());
      running.push_back(summary(scored).ppl);
    }
    const Summary wanted = summary(scored);
    Session session(model_, options_of());
    const Perplexity got = perplexity_by_chunks(session, text_, n_ctx, 0);
    EXPECT_EQ(got.tokens_scored, static_cast<std::int64_t>(scored.size())) << n_ctx;
    EXPECT_EQ(got.tokens_scored, (n_ctx - n_ctx / 2 - 1) * (150 / n_ctx)) << n_ctx;
    EXPECT_NEAR(got.ppl, wanted.ppl, 1e-6 * wanted.ppl) << n_ctx;
    EXPECT_NEAR(got.standard_error, wanted.error, 1e-5 * wanted.error) << n_ctx;
    ASSERT_EQ(got.running.size(), running.size()) << n_ctx;
    for (std::size_t i = 0; i < running.size(); ++i)
      EXPECT_NEAR(got.running[i], running[i], 1e-6 * running[i]);
  }
}

TEST_P(PerplexityTest, ByChunksStopsAfterSoMany) {
  Session session(model_, options_of());
  const Perplexity all = perplexity_by_chunks(session, text_, 30, 0);
  const Perplexity two = perplexity_by_chunks(session, text_, 30, 2);
  EXPECT_EQ(two.running, (std::vector<double>{all.running[0], all.running[1]}));
  EXPECT_EQ(two.ppl, all.running[1]);
  EXPECT_EQ(perplexity_by_chunks(session, text_, 30, 1000).running, all.running);
}

TEST_P(PerplexityTest, ByDepthScoresEveryTokenButTheFirst_InBucketsOfPositions) {
  Session session(model_, options_of());
  session.read(testing::random_tokens(40, 64, 5));  // what was read before is forgotten
  const auto nll = direct_nll(all_logits(model_, options_of(), text_), text_);
  for (const std::int64_t bucket : {1, 10, 64, 75, 150, 1000}) {
    const StreamedPerplexity got = perplexity_by_depth(session, text_, bucket);
    EXPECT_EQ(got.overall.tokens_scored, 149);
    EXPECT_NEAR(got.overall.ppl, summary(nll).ppl, 1e-6 * summary(nll).ppl);
    EXPECT_NEAR(got.overall.standard_error, summary(nll).error, 1e-5 * summary(nll).error);
    Pos next = bucket == 1 ? 1 : 0;  // a bucket of position 0 alone holds no target
    for (const DepthBucket& b : got.buckets) {
      EXPECT_EQ(b.first, next) << bucket;
      EXPECT_EQ(b.last, std::min<Pos>(150, b.first + bucket));
      next = b.last;
      std::vector<double> inside;  // nll[i] scores token i + 1
      for (Pos p = std::max<Pos>(1, b.first); p < b.last; ++p)
        inside.push_back(nll[static_cast<std::size_t>(p - 1)]);
      EXPECT_EQ(b.tokens, static_cast<std::int64_t>(inside.size()));
      EXPECT_NEAR(b.ppl, summary(inside).ppl, 1e-6 * b.ppl);
      if (inside.size() > 1) {
        EXPECT_NEAR(b.standard_error, summary(inside).error, 1e-4 * b.standard_error + 1e-9);
      }
    }
    EXPECT_EQ(next, 150) << bucket;
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabulary, PerplexityTest, ::testing::Values(false, true),
                         [](const auto& instance) { return instance.param ? "AddsBos" : "AddsNoBos"; });

class PerplexityRefusals : public PerplexityTest {};
INSTANTIATE_TEST_SUITE_P(Vocabulary, PerplexityRefusals, ::testing::Values(false));

TEST_P(PerplexityRefusals, NameTheNumbers) {
  Session session(model_, options_of(64));
  const auto refused = [&](std::size_t tokens, std::int64_t n_ctx, const std::string& says) {
    testing::expect_refused(ErrorCode::invalid_argument, says,
                            [&] { perplexity_by_chunks(session, std::span(text_).first(tokens), n_ctx, 0); });
  };
  refused(150, 3, "chunks of at least 4 tokens, not 3");
  refused(150, -5, "chunks of at least 4 tokens, not -5");
  refused(150, 65, "chunks of 65 tokens do not fit a context of 64");
  refused(39, 20, "the text has 39 tokens; perplexity over chunks of 20 needs at least 40");
  refused(0, 20, "the text has 0 tokens");
  testing::expect_refused(ErrorCode::invalid_argument, "a text of at least 2 tokens",
                          [&] { perplexity_by_depth(session, std::span(text_).first(1), 10); });
  testing::expect_refused(ErrorCode::invalid_argument, "buckets must hold at least 1 token, not 0",
                          [&] { perplexity_by_depth(session, std::span(text_).first(50), 0); });
  testing::expect_refused(ErrorCode::context_full, "150 more do not fit",
                          [&] { perplexity_by_depth(session, text_, 10); });
}

TEST_P(PerplexityRefusals, StopWhenTheCallerHasSeenEnough) {
  Session session(model_, options_of());
  std::vector<std::int64_t> reports;
  const auto stop = [&](const PerplexityProgress& p) {
    EXPECT_EQ(p.total, 150);
    EXPECT_GT(p.ppl, 1.0);
    reports.push_back(p.done);
    return p.done < 60;
  };
  testing::expect_refused(ErrorCode::cancelled, "stopped after 2 of 5 chunks",
                          [&] { perplexity_by_chunks(session, text_, 30, 0, stop); });
  EXPECT_EQ(reports, (std::vector<std::int64_t>{30, 60}));
}

TEST(NegativeLogLikelihood, IsTheLogOfTheSoftmax_AlsoForLargeLogits) {
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{0.0f, 0.0f, 0.0f, 0.0f}, 2), std::log(4.0), 1e-7);
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{1.0f, 2.0f, 3.0f}, 0),
              std::log(1.0 + std::exp(1.0) + std::exp(2.0)), 1e-6);
  for (const float offset : {1e4f, -1e4f})
    EXPECT_NEAR(negative_log_likelihood(std::vector<float>{offset + 1.0f, offset}, 1),
                std::log(1.0 + std::exp(1.0)), 1e-6);
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{0.0f, -1000.0f}, 1), 1000.0, 1e-4);
  EXPECT_EQ(negative_log_likelihood(std::vector<float>{0.0f, -1000.0f}, 0), 0.0);
}

}  // namespace
}  // namespace kvtide
