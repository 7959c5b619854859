// What a procedural memory decides before it holds anything: from how far rows are seen, and how many rows
// each head keeps.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "state/procedural/far.h"
#include "state/spec/procedural_spec.h"

namespace kvtide {
namespace {

TEST(SeenDistance, IsTheTrueOneInsideTheTrainedLength) {
  for (const FarRule rule : {FarRule::log, FarRule::clamp})
    for (const Pos position : {1, 2048, 7000, 7168})
      for (Pos distance = 0; distance <= position; distance += 97)
        ASSERT_EQ(seen_distance(rule, distance, position, 7168), distance);
}

TEST(SeenDistance, OfClampIsTheTrueOneUpToTheFarthest) {
  for (const Pos distance : {0, 1, 2048, 5000, 7167, 7168})
    EXPECT_EQ(seen_distance(FarRule::clamp, distance, 20480, 7168), distance);
  for (const Pos distance : {7169, 12000, 20480})
    EXPECT_EQ(seen_distance(FarRule::clamp, distance, 20480, 7168), 7168);
}

TEST(SeenDistance, OfLogFollowsTheFormula) {
  // D0 + (most - D0) ln(1 + (d - D0) / D0) / ln(1 + (P - D0) / D0), rounded down, worked out by hand.
  EXPECT_EQ(seen_distance(FarRule::log, 2048, 20480, 7168), 2048);
  EXPECT_EQ(seen_distance(FarRule::log, 2049, 20480, 7168), 2049);
  EXPECT_EQ(seen_distance(FarRule::log, 5000, 20480, 7168), 4032);
  EXPECT_EQ(seen_distance(FarRule::log, 10000, 20480, 7168), 5573);
  EXPECT_EQ(seen_distance(FarRule::log, 20480, 20480, 7168), 7168);
  // Models that were trained for less keep half of it as it is.
  EXPECT_EQ(seen_distance(FarRule::log, 224, 1000, 448), 224);
  EXPECT_EQ(seen_distance(FarRule::log, 300, 1000, 448), 267);
  EXPECT_EQ(seen_distance(FarRule::log, 900, 1000, 448), 432);
}

TEST(SeenDistance, OfFullHeadsIsFiveEighthsOfTheTrainedLengthAtMost_OnceTheTextIsLongerThanThat) {
  EXPECT_EQ(full_heads_see(7168, 1), 7168);
  EXPECT_EQ(full_heads_see(7168, 8192), 7168);
  EXPECT_EQ(full_heads_see(7168, 8193), 5120);
  EXPECT_EQ(full_heads_see(1, 1000), 1);
  EXPECT_EQ(full_heads_see(0, 1000), 0) << "true distances";
}

TEST(FarMass, IsNothingWhereRowsKeepTheirDistances) {
  EXPECT_EQ(far_mass(6000, 6256, 7168, 7168), 0.0f);  // the text is not longer than the trained length
  EXPECT_EQ(far_mass(1000, 1256, 20480, 7168), 0.0f);
}

TEST(FarMass, MakesUpForTheSqueeze) {
  // 5,000 to 10,000 are seen from 4,032.7 to 5,574.0: ln(1,541.3 / 5,000).
  EXPECT_NEAR(far_mass(5000, 10000, 20480, 7168), -1.1768, 1e-4);
}

TEST(FarMass, LeavesTheWholePastTheMassOfTheTrainedLength) {
  for (const Pos position : {8000, 20480, 100000, 1000000}) {
    double mass = 0.0;
    for (Pos age = 0, older = 0; age < position; age = older) {
      older = std::min(position, age + 500);
      mass += static_cast<double>(older - age) *
              std::exp(static_cast<double>(far_mass(age, older, position, 7168)));
    }
    EXPECT_NEAR(mass, 7168.0, 1.0) << position;
  }
}

TEST(SeenDistance, KeepsTheOrderAndNeverLeavesTheTrainedLength) {
  for (const FarRule rule : {FarRule::log, FarRule::clamp})
    for (const Pos most : {1, 2, 64, 448, 7168, 28672})
      for (const Pos position : {most + 1, 2 * most, 50 * most, Pos{1} << 30}) {
        Pos before = -1;
        const Pos step = std::max<Pos>(1, position / 3001);
        for (Pos distance = 0; distance <= position; distance += distance < 5000 ? 1 : step) {
          const Pos seen = seen_distance(rule, distance, position, most);
          ASSERT_GE(seen, before) << "distance " << distance << " of " << position << ", most " << most;
          ASSERT_LE(seen, std::min(distance, most));
          ASSERT_GE(seen, std::min({distance, most / 2, Pos{2048}})) << "near rows move";
          before = seen;
        }
      }
}

ProceduralOptions options_of(std::vector<HeadNeed> needs, int kv_heads) {
  ProceduralOptions options;
  options.block = 64;
  options.rows = 14;
  options.summaries = 4;
  options.heads.kv_heads = kv_heads;
  options.heads.needs = std::move(needs);
  return options;
}
std::vector<std::int64_t> rows_of(const std::vector<std::vector<HeadPlan>>& plans) {
  std::vector<std::int64_t> rows;
  for (const auto& layer : plans)
    for (const HeadPlan& plan : layer) rows.push_back(plan.full ? -1 : plan.rows);
  return rows;
}
using Rows = std::vector<std::int64_t>;

TEST(PlanHeads, WithoutATableAllHeadsKeepTheMean) {
  const auto plans = plan_heads(options_of({}, 2), {true, true, true}, 2);
  EXPECT_EQ(rows_of(plans), (Rows{14, 14, 14, 14, 14, 14}));
}

TEST(PlanHeads, LayersWithAWindowOfTheirOwnHaveNoPlans) {
  const auto plans = plan_heads(options_of(std::vector<HeadNeed>(6), 2), {true, false, true}, 2);
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(plans[0].size(), 2u);
  EXPECT_TRUE(plans[1].empty());
  EXPECT_EQ(plans[2].size(), 2u);
}

TEST(PlanHeads, HeadsFromTheThresholdOnAreFull_AndTheOthersPayForThem) {
  // 8 heads x 10 outliers are 80; one full head has 60 rows more than its summaries: 20 are left for seven.
  std::vector<HeadNeed> needs(8);
  needs[2].induction = 0.15f;
  needs[5].induction = 0.1499f;
  const auto plans = plan_heads(options_of(needs, 2), {true, true, true, true}, 2);
  EXPECT_EQ(rows_of(plans), (Rows{7, 7, -1, 7, 7, 7, 7, 7}));
}

TEST(PlanHeads, WhereFullHeadsTakeEverythingTheOthersStillKeepAnOutlier_OrTheirRowsWhereMostAreFull) {
  std::vector<HeadNeed> needs(4);
  for (int head : {0, 1}) needs[static_cast<std::size_t>(head)].induction = 0.9f;
  EXPECT_EQ(rows_of(plan_heads(options_of(needs, 2), {true, true}, 2)), (Rows{-1, -1, 5, 5}));
  needs[2].induction = 0.9f;
  EXPECT_EQ(rows_of(plan_heads(options_of(needs, 2), {true, true}, 2)), (Rows{-1, -1, -1, 14}));
  needs[3].induction = 0.9f;
  EXPECT_EQ(rows_of(plan_heads(options_of(needs, 2), {true, true}, 2)), (Rows{-1, -1, -1, -1}));
}

TEST(PlanHeads, RowsFollowTheShares_WithinAFifthAndThreeTimesTheMean) {
  // Ten heads, 100 outliers. In proportion: 5 x 4 and 5 x 16.
  std::vector<HeadNeed> needs(10, HeadNeed{0.0f, 1.0f, 1.0f});
  for (std::size_t i = 5; i < 10; ++i) needs[i].share = 4.0f;
  EXPECT_EQ(rows_of(plan_heads(options_of(needs, 10), {true}, 10)),
            (Rows{8, 8, 8, 8, 8, 20, 20, 20, 20, 20}));
  // One that needs a thousand times as much gets 30; the nine share 70.
  std::fill(needs.begin(), needs.end(), HeadNeed{0.0f, 1.0f, 1.0f});
  needs[0].share = 1000.0f;
  EXPECT_EQ(rows_of(plan_heads(options_of(needs, 10), {true}, 10)),
            (Rows{34, 12, 12, 12, 12, 12, 12, 12, 12, 12}));
  // One that needs nothing keeps 2; the nine share 98.
  needs[0].share = 0.0f;
  EXPECT_EQ(rows_of(plan_heads(options_of(needs, 10), {true}, 10)),
            (Rows{6, 15, 15, 15, 15, 15, 15, 15, 15, 15}));
}

TEST(PlanHeads, KeepTheMeanWhateverTheShares) {
  std::vector<HeadNeed> needs(24);
  for (std::size_t i = 0; i < needs.size(); ++i)
    needs[i].share = static_cast<float>((i * 37 + 11) % 24 * ((i * 37 + 11) % 24)) * 0.01f;
  const auto rows = rows_of(plan_heads(options_of(needs, 4), std::vector<bool>(6, true), 4));
  const std::int64_t sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  EXPECT_NEAR(static_cast<double>(sum), 24 * 14, 12) << "rounding moves half a row per head";
  for (const std::int64_t kept : rows) {
    EXPECT_GE(kept, 4 + 2);
    EXPECT_LE(kept, 4 + 30);
  }
}

TEST(PlanHeads, NoHeadKeepsAllOfABlockUnlessItIsFull) {
  ProceduralOptions options = options_of({}, 1);
  options.rows = 64;
  EXPECT_EQ(rows_of(plan_heads(options, {true}, 1)), (Rows{63}));
}

TEST(PlanHeads, WeighsTheRowsOfAHeadByItsPartInTheOutput) {
  const auto plans = plan_heads(options_of({{0.0f, 1.0f, 0.25f}, {0.5f, 1.0f, 3.0f}}, 2), {true}, 2);
  EXPECT_EQ(plans[0][0].weight, 0.25f);
  EXPECT_EQ(plans[0][1].weight, 3.0f);
  EXPECT_TRUE(plans[0][1].full);
}

// Tokens that give references to a head of `window` and `block`, with `group` query heads for each KV head.
std::int64_t reference_tokens(std::int64_t window, std::int64_t block, int group) {
  ProceduralSpec spec;
  spec.window = window;
  spec.block = block;
  spec.query_heads = 2 * group;
  spec.plans = {{}, {HeadPlan{}, HeadPlan{}}};
  place_references(spec);
  return (spec.reference_span > 0 ? spec.reference_span : window + block) / reference_stride(spec);
}

TEST(References, AreOfAsManyTokensWhateverTheWindow_AndHalfAsManyWhereThreeQueryHeadsShareAKvHead) {
  for (const std::int64_t window : {128, 512, 4096}) {
    EXPECT_EQ(reference_tokens(window, 64, 3), 48) << window;
    EXPECT_EQ(reference_tokens(window, 64, 8), 48) << window;
    EXPECT_EQ(reference_tokens(window, 64, 2), 96) << window;
  }
  EXPECT_EQ(reference_tokens(512, 256, 3), 48);
  EXPECT_EQ(reference_tokens(64, 64, 3), 64) << "a window of one block: the stride is whole";
  EXPECT_EQ(reference_tokens(8, 8, 1), 16) << "all tokens that there are";
}

}  // namespace
}  // namespace kvtide
