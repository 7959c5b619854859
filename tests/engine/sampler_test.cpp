#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "engine/most_likely.h"
#include "kvtide/generate.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Every filter off: plain sampling at temperature 1.
SamplerOptions plain(std::uint64_t seed = 1) {
  SamplerOptions o;
  o.temperature = 1.0f;
  o.top_k = 0;
  o.top_p = 1.0f;
  o.min_p = 0.0f;
  o.seed = seed;
  return o;
}

const std::vector<float> kLogits = {1.0f, -0.5f, 2.0f, 0.0f, 1.9f, -3.0f, 0.7f, 1.0f};

// Draws often and compares every frequency with the probability it should have; 0 means never.
void expect_frequencies(const SamplerOptions& options, const std::vector<double>& wanted,
                        const std::vector<float>& logits = kLogits, std::vector<TokenId> recent = {}) {
  Sampler sampler(options);
  constexpr int kDraws = 100000;
  std::vector<int> count(logits.size());
  for (int i = 0; i < kDraws; ++i) ++count[static_cast<std::size_t>(sampler.pick(logits, recent))];
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == 0.0) {
      EXPECT_EQ(count[i], 0) << "token " << i;
      continue;
    }
    const double expected = kDraws * wanted[i];
    EXPECT_NEAR(count[i], expected, 5.0 * std::sqrt(expected * (1.0 - wanted[i])) + 1.0) << "token " << i;
  }
}

// Probabilities of the tokens in `kept` at a temperature, 0 for all others.
std::vector<double> softmax(const std::vector<float>& logits, double temperature,
                            const std::vector<std::size_t>& kept) {
  std::vector<double> out(logits.size(), 0.0);
  double sum = 0.0;
  for (const std::size_t i : kept) sum += out[i] = std::exp(static_cast<double>(logits[i]) / temperature);
  for (double& p : out) p /= sum;
  return out;
}

const std::vector<std::size_t> kAll = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(Sampler, DrawsFromTheSoftmax_AtEveryTemperature) {
  for (const float temperature : {0.3f, 1.0f, 2.5f}) {
    SamplerOptions o = plain();
    o.temperature = temperature;
    expect_frequencies(o, softmax(kLogits, static_cast<double>(temperature), kAll));
  }
}

TEST(Sampler, WithTopKDrawsFromTheKMostLikely_TiesToTheLowerId) {
  SamplerOptions o = plain();
  o.top_k = 3;  // 2, 4, and of the tied 0 and 7 the first
  expect_frequencies(o, softmax(kLogits, 1.0, {2, 4, 0}));
  o.top_k = 4;
  expect_frequencies(o, softmax(kLogits, 1.0, {2, 4, 0, 7}));
  o.top_k = 1;
  expect_frequencies(o, softmax(kLogits, 1.0, {2}));
  o.top_k = 1000;
  expect_frequencies(o, softmax(kLogits, 1.0, kAll));
}

TEST(Sampler, WithTopPDrawsFromTheSmallestSetOfThatProbability) {
  const auto all = softmax(kLogits, 1.0, kAll);
  std::vector<std::size_t> order = kAll;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return all[a] > all[b]; });
  for (const float top_p : {0.01f, 0.3f, 0.5f, 0.7f, 0.9f, 0.99f}) {
    std::vector<std::size_t> kept;
    double sum = 0.0;
    for (const std::size_t i : order) {
      kept.push_back(i);
      sum += all[i];
      if (sum >= static_cast<double>(top_p)) break;
    }
    SamplerOptions o = plain();
    o.top_p = top_p;
    expect_frequencies(o, softmax(kLogits, 1.0, kept));
  }
}

TEST(Sampler, WithMinPDropsWhatIsBelowThatShareOfTheMostLikely) {
  for (const float min_p : {0.05f, 0.2f, 0.3f, 0.5f, 0.95f, 1.0f}) {
    std::vector<std::size_t> kept;
    for (const std::size_t i : kAll)
      if (std::exp(static_cast<double>(kLogits[i]) - 2.0) >= static_cast<double>(min_p)) kept.push_back(i);
    SamplerOptions o = plain();
    o.min_p = min_p;
    expect_frequencies(o, softmax(kLogits, 1.0, kept));
  }
}

TEST(Sampler, AppliesTopPToWhatTopKLeft) {
  SamplerOptions o = plain();
  o.top_k = 4;  // 2, 4, 0, 7 with 0.392, 0.355, 0.144, 0.144 of their sum... the first two reach 0.6
  o.top_p = 0.6f;
  expect_frequencies(o, softmax(kLogits, 1.0, {2, 4}));
  o.min_p = 0.95f;  // e^-0.1 = 0.905 of the most likely: token 4 goes
  expect_frequencies(o, softmax(kLogits, 1.0, {2}));
}

TEST(Sampler, NeverDrawsTheImpossible) {
  auto logits = kLogits;
  logits[2] = logits[4] = -kInf;
  expect_frequencies(plain(), softmax(logits, 1.0, {0, 1, 3, 5, 6, 7}), logits);
  std::vector<float> only(8, -kInf);
  only[5] = -1e30f;
  EXPECT_EQ(Sampler(plain()).pick(only, {}), 5);
  EXPECT_EQ(Sampler(SamplerOptions{}).pick(only, {}), 5);
}

TEST(Sampler, IsGreedyAtTemperatureZero_AndGivesTiesToTheLowerId) {
  Sampler greedy(SamplerOptions{});
  EXPECT_EQ(greedy.pick(kLogits, {}), 2);
  EXPECT_EQ(greedy.pick(std::vector<float>{1.0f, 3.0f, 3.0f, 3.0f}, {}), 1);
  EXPECT_EQ(greedy.pick(std::vector<float>{0.0f, -0.0f}, {}), 0);
  EXPECT_EQ(greedy.pick(std::vector<float>{-0.0f, 0.0f}, {}), 0);
}

TEST(MostLikely, AreTheFirstOfAllInOrder) {
  std::mt19937 random(7);
  for (const std::size_t size : {1u, 7u, 8u, 9u, 255u, 256u, 257u, 300u, 3000u}) {
    std::vector<float> logits(size);
    // Few different numbers, so that many are equal.
    const unsigned numbers = size < 1000 ? 20 : 1000;
    for (float& logit : logits) logit = static_cast<float>(random() % numbers) - 10.0f;
    logits[random() % size] = -kInf;
    std::vector<TokenId> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    EXPECT_EQ(highest(logits), static_cast<std::size_t>(order[0]));
    for (std::size_t count = 0; count <= size + 1; count += 1 + count / 4) {
      std::vector<TokenId> ids;
      for (const Candidate& one : most_likely(logits, count)) {
        EXPECT_EQ(one.logit, logits[static_cast<std::size_t>(one.id)]);
        ids.push_back(one.id);
      }
      EXPECT_EQ(ids, std::vector<TokenId>(
                         order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(count, size))));
    }
  }
}

TEST(Sampler, NearlyGreedyTemperaturesDoNotOverflow) {
  for (const float temperature : {1e-3f, 1e-20f, std::numeric_limits<float>::denorm_min()}) {
    SamplerOptions o = plain();
    o.temperature = temperature;
    EXPECT_EQ(Sampler(o).pick(kLogits, {}), 2) << temperature;
  }
}

TEST(Sampler, DrawsTheSameTokensFromTheSameSeed_AndOthersFromAnother) {
  const auto draws = [](std::uint64_t seed) {
    Sampler sampler(plain(seed));
    std::vector<TokenId> out;
    for (int i = 0; i < 100; ++i) out.push_back(sampler.pick(kLogits, {}));
    return out;
  };
  EXPECT_EQ(draws(7), draws(7));
  EXPECT_NE(draws(7), draws(8));
  EXPECT_NE(draws(0), draws(1));
}

TEST(Sampler, PenalisesRecentTokensOnce_DividingPositiveAndMultiplyingNegativeLogits) {
  SamplerOptions o = plain();
  o.repeat_penalty = 1.5f;
  const std::vector<TokenId> recent = {2, 2, 1, 2, 6};
  std::vector<float> penalised = kLogits;
  penalised[2] /= 1.5f;
  penalised[1] *= 1.5f;
  penalised[6] /= 1.5f;
  expect_frequencies(o, softmax(penalised, 1.0, kAll), kLogits, recent);
}

TEST(Sampler, PenalisesOnlyTheNewestTokens) {
  SamplerOptions o;  // greedy
  o.repeat_penalty = 10.0f;
  o.repeat_last = 2;
  EXPECT_EQ(Sampler(o).pick(kLogits, std::vector<TokenId>{2, 0, 1}), 2) << "2 is three tokens ago";
  EXPECT_EQ(Sampler(o).pick(kLogits, std::vector<TokenId>{0, 2, 1}), 4);
  EXPECT_EQ(Sampler(o).pick(kLogits, std::vector<TokenId>{2}), 4) << "fewer tokens than it would look at";
  o.repeat_last = 0;
  EXPECT_EQ(Sampler(o).pick(kLogits, std::vector<TokenId>{2, 2}), 2);
}

TEST(Sampler, RefusesRecentTokensThatHaveNoLogit) {
  SamplerOptions o;
  o.repeat_penalty = 1.1f;
  for (const TokenId bad : {-1, 8, std::numeric_limits<TokenId>::max()})
    testing::expect_refused(ErrorCode::invalid_argument, "token id " + std::to_string(bad), [&] {
      Sampler(o).pick(kLogits, std::vector<TokenId>{0, bad});
    });
}

TEST(Sampler, RefusesOptionsOutOfRange_NanIncluded) {
  const float nan = std::nanf("");
  const auto refused = [](const std::string& name, auto change) {
    SamplerOptions o;
    change(o);
    testing::expect_refused(ErrorCode::invalid_argument, name + " must be ", [&] { Sampler sampler(o); });
  };
  for (const float bad : {nan, -1.0f, kInf, 2e6f})
    refused("temperature", [&](auto& o) { o.temperature = bad; });
  for (const float bad : {nan, 0.0f, -0.5f, 1.5f, kInf}) refused("top-p", [&](auto& o) { o.top_p = bad; });
  for (const float bad : {nan, -0.1f, 1.1f, kInf}) refused("min-p", [&](auto& o) { o.min_p = bad; });
  for (const float bad : {nan, 0.0f, -1.0f, kInf})
    refused("the repeat penalty", [&](auto& o) { o.repeat_penalty = bad; });
  refused("top-k", [](auto& o) { o.top_k = -1; });
  refused("the number of tokens under the repeat penalty", [](auto& o) { o.repeat_last = -1; });
}

TEST(Sampler, RefusesLogitsThatAreNotNumbers_AndNamesTheToken) {
  for (const auto& options : {SamplerOptions{}, plain()}) {
    for (const float bad : {std::nanf(""), kInf}) {
      auto logits = kLogits;
      logits[6] = bad;
      testing::expect_refused(ErrorCode::numeric, "the logit of token 6 is ",
                              [&] { Sampler(options).pick(logits, {}); });
    }
    testing::expect_refused(ErrorCode::numeric, "no token is possible",
                            [&] { Sampler(options).pick(std::vector<float>(8, -kInf), {}); });
    testing::expect_refused(ErrorCode::numeric, "no token is possible",
                            [&] { Sampler(options).pick({}, {}); });
  }
}

}  // namespace
}  // namespace kvtide
