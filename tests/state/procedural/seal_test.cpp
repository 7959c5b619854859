// Sealing one block of one head against an implementation of its own in double precision
// (tools/make_procedural_goldens.py): tests/goldens/procedural/seal.golden.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "state/procedural/summarise.h"
#include "tests/state/procedural/seal_goldens.h"

namespace kvtide {
namespace {

using Golden = testing::SealGolden;

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = testing::read_seal_goldens();
  return all;
}

// Relative to the largest number, as sums round.
::testing::AssertionResult near(const std::vector<float>& got, const std::vector<float>& wanted,
                                float tolerance) {
  if (got.size() != wanted.size())
    return ::testing::AssertionFailure() << got.size() << " values instead of " << wanted.size();
  float size = 0.0f;
  for (const float x : wanted) size = std::max(size, std::abs(x));
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - wanted[i]) <= tolerance * size))
      return ::testing::AssertionFailure()
             << "value " << i << " is " << got[i] << " instead of " << wanted[i];
  return ::testing::AssertionSuccess();
}

// The biases and values of the summaries, by row.
struct Summaries {
  std::vector<float> bias, values;
};
Summaries summaries_of(const Summarised& sealed, const BlockRows& block) {
  Summaries out;
  for (const KeptRow& kept : sealed.kept) {
    if (kept.value < 0) continue;
    out.bias.push_back(kept.bias);
    const auto from = sealed.values.begin() + kept.value * block.padded_dim;
    out.values.insert(out.values.end(), from, from + block.dim);
  }
  return out;
}

constexpr float kTolerance = 5e-5f;

TEST(ProceduralSeal, TheGoldensHoldEveryKindOfCase) {
  int rejected = 0, exact_only = 0, lowest = 0, highest = 0, biased = 0;
  for (const Golden& golden : goldens()) {
    rejected += golden.integers.at("rejected").at(0) != 0;
    exact_only += golden.summaries == 0;
    for (const float bias : golden.floats.at("kept_bias"))
      lowest += std::abs(bias + 3.0f) < 1e-4f, highest += std::abs(bias - 7.0f) < 1e-4f;
    for (const float bias : golden.floats.at("bias")) biased += bias != 0.0f;
  }
  EXPECT_EQ(goldens().size(), 10u);
  EXPECT_GE(rejected, 1);
  EXPECT_GE(exact_only, 1);
  EXPECT_GE(lowest, 1);
  EXPECT_GE(highest, 1);
  EXPECT_GE(biased, 10);
}

TEST(ProceduralSeal, KeepsTheRowsBiasesAndValuesOfAnIndependentImplementation) {
  for (const Kernels* kernels : available_kernels())
    for (const Golden& golden : goldens()) {
      SCOPED_TRACE(golden.name + " with " + kernels->dense.isa);
      Summariser summariser(kernels->dense);
      const BlockRows block = golden.block();
      const Summarised got =
          summariser.summarise(block, golden.floats.at("counts"), golden.asked(), golden.rules());
      std::vector<std::int64_t> rows;
      std::vector<float> bias, count, score;
      for (std::size_t i = 0; i < got.kept.size(); ++i) {
        const KeptRow& kept = got.kept[i];
        rows.push_back(kept.row);
        bias.push_back(kept.bias);
        count.push_back(kept.count);
        score.push_back(kept.value < 0 ? kept.score : 0.0f);
      }
      ASSERT_EQ(rows, golden.integers.at("kept"));
      for (std::size_t i = 0; i < got.kept.size(); ++i)
        EXPECT_EQ(got.kept[i].value < 0, golden.integers.at("kept_value")[i] < 0) << i;
      EXPECT_EQ(got.rejected, golden.integers.at("rejected").at(0) != 0);
      EXPECT_TRUE(near(bias, golden.floats.at("kept_bias"), kTolerance));
      EXPECT_TRUE(near(count, golden.floats.at("kept_count"), 0.0f));
      EXPECT_TRUE(near(score, golden.floats.at("kept_score"), kTolerance));
      EXPECT_TRUE(near(summaries_of(got, block).values, golden.floats.at("fitted"), kTolerance));
      EXPECT_NEAR(got.log_mass_error, golden.floats.at("log_mass_error").at(0), 1e-4f);
    }
}

TEST(ProceduralSeal, WithoutAFitSummariesAreTheLogOfTheirMassAndTheirMean) {
  // A fit is rejected where references contradict; elsewhere the same pivots have these.
  int compared = 0;
  for (const Golden& golden : goldens()) {
    if (golden.integers.at("rejected").at(0) == 0) continue;
    SCOPED_TRACE(golden.name);
    Summariser summariser(best_kernels().dense);
    const BlockRows block = golden.block();
    const Summarised got =
        summariser.summarise(block, golden.floats.at("counts"), golden.asked(), golden.rules());
    EXPECT_TRUE(near(summaries_of(got, block).bias, golden.floats.at("plain_bias"), kTolerance));
    EXPECT_TRUE(near(summaries_of(got, block).values, golden.floats.at("plain_values"), kTolerance));
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

// How alike the keys of two rows are to a summary: the larger, the nearer.
double likeness(const BlockRows& block, Summary summary, std::int64_t row, std::int64_t pivot) {
  if (row == pivot) return 1e9;
  if (summary == Summary::positional) return -static_cast<double>(std::abs(row - pivot));
  double product = 0.0, size = 0.0, pivot_size = 0.0;
  for (std::int64_t d = 0; d < block.dim; ++d) {
    const auto x = static_cast<double>(block.keys[static_cast<std::size_t>(row * block.padded_dim + d)]);
    const auto y = static_cast<double>(block.keys[static_cast<std::size_t>(pivot * block.padded_dim + d)]);
    product += x * y, size += x * x, pivot_size += y * y;
  }
  return product / std::sqrt(size * pivot_size);
}

TEST(ProceduralSeal, PlainSummariesAreTheLogOfTheirNumberAndTheirMean) {
  for (const Golden& golden : goldens())
    for (const Summary summary : {Summary::cluster, Summary::positional}) {
      const BlockRows block = golden.block();
      if (std::any_of(block.bias.begin(), block.bias.end(), [](float bias) { return bias != 0.0f; }))
        continue;
      SCOPED_TRACE(golden.name);
      SummaryRules rules = golden.rules();
      rules.summary = summary;
      Summariser summariser(best_kernels().dense);
      const Summarised got = summariser.summarise(block, golden.floats.at("counts"), golden.asked(), rules);
      std::vector<std::int64_t> pivots, exact;
      for (const KeptRow& kept : got.kept) (kept.value < 0 ? exact : pivots).push_back(kept.row);
      auto wanted_exact = golden.integers.at("rank_mixed");
      wanted_exact.resize(static_cast<std::size_t>(golden.exact));
      std::sort(wanted_exact.begin(), wanted_exact.end());
      ASSERT_EQ(exact, wanted_exact);
      ASSERT_EQ(static_cast<std::int64_t>(pivots.size()), golden.summaries);
      EXPECT_FALSE(got.rejected);
      std::vector<double> count(pivots.size(), 0.0),
          mean(pivots.size() * static_cast<std::size_t>(golden.dim), 0.0);
      for (std::int64_t row = 0; row < golden.rows && !pivots.empty(); ++row) {
        if (std::binary_search(exact.begin(), exact.end(), row)) continue;
        std::size_t nearest = 0;
        for (std::size_t p = 1; p < pivots.size(); ++p)
          if (likeness(block, summary, row, pivots[p]) > likeness(block, summary, row, pivots[nearest]))
            nearest = p;
        count[nearest] += 1.0;
        for (std::int64_t d = 0; d < golden.dim; ++d)
          mean[nearest * static_cast<std::size_t>(golden.dim) + static_cast<std::size_t>(d)] +=
              static_cast<double>(block.values[static_cast<std::size_t>(row * block.padded_dim + d)]);
      }
      std::vector<float> bias, values;
      for (const double n : count) bias.push_back(static_cast<float>(std::log(n)));
      for (std::size_t i = 0; i < mean.size(); ++i)
        values.push_back(static_cast<float>(mean[i] / count[i / static_cast<std::size_t>(golden.dim)]));
      EXPECT_TRUE(near(summaries_of(got, block).bias, bias, 1e-6f));
      EXPECT_TRUE(near(summaries_of(got, block).values, values, 1e-6f));
      for (const KeptRow& kept : got.kept) {
        if (kept.value < 0) continue;
        EXPECT_EQ(static_cast<double>(kept.count), count[static_cast<std::size_t>(kept.value)]);
      }
    }
}

TEST(ProceduralSeal, OrdersRowsAsTheIndependentImplementationDoes) {
  for (const Kernels* kernels : available_kernels())
    for (const Golden& golden : goldens())
      for (const auto& [score, name] :
           {std::pair(RowScore::mixed, "rank_mixed"), std::pair(RowScore::novelty, "rank_novelty"),
            std::pair(RowScore::value_norm, "rank_value_norm"),
            std::pair(RowScore::attention, "rank_attention")}) {
        SCOPED_TRACE(golden.name + " " + name + " with " + kernels->dense.isa);
        Summariser summariser(kernels->dense);
        std::vector<std::int64_t> got =
            summariser.ranking(golden.block(), golden.asked(), golden.rules(score));
        ASSERT_EQ(got.size(), static_cast<std::size_t>(golden.rows));
        got.resize(golden.integers.at(name).size());  // the rest could go either way
        EXPECT_EQ(got, golden.integers.at(name));
      }
}

TEST(ProceduralSeal, MergingKeepsTheMostAttendedRowsOfTheIndependentImplementation) {
  for (const Kernels* kernels : available_kernels())
    for (const Golden& golden : goldens()) {
      SCOPED_TRACE(golden.name + " with " + kernels->dense.isa);
      Summariser summariser(kernels->dense);
      const Summarised got = summariser.summarise(golden.block(), golden.floats.at("counts"), golden.asked(),
                                                  golden.rules(RowScore::attention));
      std::vector<std::int64_t> kept;
      for (const KeptRow& row : got.kept) kept.push_back(row.row);
      EXPECT_EQ(kept, golden.integers.at("most_attended"));
    }
}

TEST(ProceduralSeal, LossesOfRowsAreThoseOfTheIndependentImplementation) {
  for (const Kernels* kernels : available_kernels())
    for (const Golden& golden : goldens()) {
      SCOPED_TRACE(golden.name + " with " + kernels->dense.isa);
      Summariser summariser(kernels->dense);
      EXPECT_TRUE(near(summariser.row_losses(golden.block(), golden.asked(), golden.scale),
                       golden.floats.at("losses"), kTolerance));
    }
}

}  // namespace
}  // namespace kvtide
