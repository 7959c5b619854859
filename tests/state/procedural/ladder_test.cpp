// What a budget buys: never more bytes, nothing left on the table, and never less for more.
#include "state/procedural/ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/pages.h"
#include "kernels/attend_kernel.h"
#include "state/procedural/budget.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr Pos kTrained = 32768;

// Eight layers of two KV heads of 64, of which one layer has a window; `copying` heads of the others copy.
class LadderTest : public ::testing::TestWithParam<int> {
 protected:
  LadderTest() {
    const std::vector<double> frequencies(32, 0.01);
    for (int layer = 0; layer < 8; ++layer)
      shape_.layers.push_back(
          {2, 64, layer == 3 ? std::optional<std::int64_t>(512) : std::nullopt, frequencies});
    shape_.max_step = 512;
  }

  ProceduralOptions picked(std::int64_t budget, Pos expected, RowType type = RowType::automatic) const {
    ProceduralOptions o;
    o.budget = budget;
    o.budget_for = expected;
    o.full_type = type;
    o.heads.kv_heads = 2;
    o.heads.needs.resize(16);
    for (int head = 0; head < GetParam(); ++head)
      o.heads.needs[static_cast<std::size_t>(head)].induction = 1.0f;
    return filled_in(shape_, attention_, o);
  }
  std::int64_t bytes_of(const ProceduralOptions& o) const {
    KvSpec spec = shape_;
    spec.procedural = procedural_spec(shape_, attention_, o);
    return planned_bytes(spec).total();
  }
  // Does every head keep all of so many tokens?
  bool holds_all(const ProceduralOptions& o, Pos expected) const {
    const auto stages = procedural_spec(shape_, attention_, o).stages;
    return holds_exactly(o, expected) || (!stages.empty() && stages.back().until > expected) ||
           (o.full_from < 0.0f && o.window + o.full_rows >= expected);
  }
  // And as they were written?
  bool holds_exactly(const ProceduralOptions& o, Pos expected) const {
    const auto stages = procedural_spec(shape_, attention_, o).stages;
    return o.window >= expected || (!stages.empty() && stages.front().until > expected);
  }
  std::int64_t cache_of(DType type, Pos tokens) const {
    const std::int64_t row = page_ceil(tokens * dtype_bytes(type, 64)),
                       windowed = page_ceil((512 + 128 + kTileRows) * dtype_bytes(type, 64));
    return 2 * 2 * (7 * row + windowed);
  }

  KvSpec shape_;
  const AttentionShape attention_{8, 0.125f, kTrained};
};

TEST_P(LadderTest, ABudgetIsNeverExceededAndAlmostAllOfItIsUsed) {
  for (const Pos expected : {Pos{0}, Pos{3000}, Pos{20'000}, Pos{100'000}})
    for (std::int64_t budget = 16 * kMiB; budget <= 1024 * kMiB; budget *= 2) {
      const ProceduralOptions o = picked(budget, expected);
      EXPECT_LE(bytes_of(o), budget) << budget / kMiB << "M for " << expected;
      const bool complete = expected > 0 && holds_all(o, expected);
      if (!complete && budget <= 512 * kMiB) {
        EXPECT_GE(bytes_of(o), budget / 100 * 92) << budget / kMiB << "M for " << expected;
      }
    }
}

TEST_P(LadderTest, StepsOfAnyLengthFindTheSameMemory) {
  for (const Pos expected : {Pos{0}, Pos{3000}, Pos{100'000}})
    for (std::int64_t budget = 8 * kMiB; budget <= 256 * kMiB; budget += budget / 4) {
      shape_.max_step = 512;
      const ProceduralSpec wanted = procedural_spec(shape_, attention_, picked(budget, expected));
      for (const std::int64_t step : {1, 100, 4096}) {
        shape_.max_step = step;
        const ProceduralSpec found = procedural_spec(shape_, attention_, picked(budget, expected));
        EXPECT_TRUE(keeps_the_same(found, wanted)) << step << " in " << budget << " for " << expected;
        EXPECT_TRUE(found.stages == wanted.stages) << step << " in " << budget << " for " << expected;
      }
    }
}

TEST_P(LadderTest, StepsAreShortBesideWindowsWhereThatFreesASixteenthOfTheBudget) {
  KvSpec spec = shape_;
  spec.procedural.emplace().window_type = WindowType::as_written;
  const std::int64_t freed = 2 * 2 * dtype_bytes(DType::f16, 64) * (128 - 32);
  for (const auto& [budget, step] :
       {std::pair{std::int64_t{0}, 512}, {16 * freed, 128}, {16 * freed - 1, 32}}) {
    spec.procedural->budget = budget;
    EXPECT_EQ(longest_step(spec), step) << budget;
  }
  spec.max_step = 8;
  EXPECT_EQ(longest_step(spec), 8);
  spec.layers[3].window.reset();
  spec.max_step = 512;
  EXPECT_EQ(longest_step(spec), 512) << "there is no window";
}

// Four levels of blocks of 128 reach back over 11,520 tokens.
TEST_P(LadderTest, BlocksAreSmallWhereTheirLevelsReachBackOverTheText) {
  for (std::int64_t budget = 8 * kMiB; budget <= 64 * kMiB; budget += 4 * kMiB) {
    const ProceduralOptions o = picked(budget, 11'520);
    if (!holds_all(o, 11'520)) {
      EXPECT_LE(o.block, 128) << budget / kMiB << "M";
    }
  }
  EXPECT_GE(picked(64 * kMiB, 100'000).block, 256);
}

TEST_P(LadderTest, MoreBytesNeverHoldLess) {
  for (const Pos expected : {Pos{3000}, Pos{20'000}, Pos{100'000}}) {
    bool all = false, exact = false;
    for (std::int64_t budget = 16 * kMiB; budget <= 2048 * kMiB; budget += budget / 8) {
      const ProceduralOptions o = picked(budget, expected);
      EXPECT_GE(holds_all(o, expected), all) << budget / kMiB << "M for " << expected;
      EXPECT_GE(holds_exactly(o, expected), exact) << budget / kMiB << "M for " << expected;
      all = holds_all(o, expected);
      exact = holds_exactly(o, expected);
    }
    EXPECT_TRUE(all);
    EXPECT_EQ(exact, expected <= kTrained) << "beyond the trained length rows are seen nearer than they are";
  }
}

TEST_P(LadderTest, TheWindowIsInEightBits_WhereABudgetDoesNotHoldEveryRow) {
  const auto type = [&](std::int64_t budget, Pos expected) { return picked(budget, expected).window_type; };
  EXPECT_EQ(type(16 * kMiB, 100'000), WindowType::q8_0);
  EXPECT_EQ(type(16 * kMiB, 0), WindowType::q8_0);
  EXPECT_EQ(type(1024 * kMiB, 3000), WindowType::as_written) << "all of it is";
  ProceduralOptions given;
  given.budget = 16 * kMiB;
  given.budget_for = 100'000;
  const std::int64_t narrow = filled_in(shape_, attention_, given).window;
  given.window_type = WindowType::as_written;
  const ProceduralOptions wide = filled_in(shape_, attention_, given);
  EXPECT_EQ(wide.window_type, WindowType::as_written);
  EXPECT_LE(wide.window, narrow);
  given.window_type = WindowType::automatic;
  given.window = 256;
  EXPECT_EQ(filled_in(shape_, attention_, given).window_type, WindowType::as_written)
      << "a window that was given";
}

TEST_P(LadderTest, RowsStayExactFirstWhereTheBudgetPicksTheWindowAndNoEndIsKnown) {
  EXPECT_TRUE(picked(64 * kMiB, 0).exact_first);
  EXPECT_FALSE(picked(64 * kMiB, 100'000).exact_first);
  ProceduralOptions given;
  given.budget = 64 * kMiB;
  given.window = 128;
  EXPECT_FALSE(filled_in(shape_, attention_, given).exact_first);
  given.window = 0;
  given.exact_first = false;
  EXPECT_FALSE(filled_in(shape_, attention_, given).exact_first);
}

TEST_P(LadderTest, WhereTheLengthIsKnownWindowsGrowWithBudgetsAndOtherHeadsStayCompressed) {
  constexpr Pos kExpected = 20'000;
  ProceduralOptions o;
  o.budget_for = kExpected;
  o.heads.kv_heads = 2;
  o.heads.needs.resize(16);
  for (int head = 0; head < 16; ++head)
    o.heads.needs[static_cast<std::size_t>(head)].induction =
        head < GetParam() ? 1.0f : 0.1f / static_cast<float>(1 + head);
  std::int64_t window = 0;
  bool all = false;
  for (const std::int64_t budget : {48 * kMiB, 64 * kMiB, 80 * kMiB, 110 * kMiB, 160 * kMiB}) {
    o.budget = budget;
    const ProceduralOptions filled = filled_in(shape_, attention_, o);
    EXPECT_LE(bytes_of(filled), budget);
    EXPECT_EQ(filled.heads, o.heads);
    all = holds_all(filled, kExpected);
    if (all) continue;
    EXPECT_EQ(filled.full_from, o.full_from) << budget / kMiB;
    EXPECT_GE(filled.window, window) << budget / kMiB;
    window = filled.window;
  }
  EXPECT_TRUE(all);
}

// Words that come back cost nothing more without their rows, so that what a head attends to makes it no copying head.
TEST(Ladder, AHeadWhoseRowsAreWorthLittleIsNoCopyingHead) {
  HeadNeed need{.induction = 0.9f};
  EXPECT_EQ(need.copies(), 0.9f) << "nobody measured what it is worth";
  need.worth = 0.19f;
  EXPECT_LT(need.copies(), ProceduralOptions{}.full_from);
  need.worth = 0.2f;
  EXPECT_EQ(need.copies(), 0.9f);
  need = {.induction = 0.1f, .worth = 0.0f};
  EXPECT_EQ(need.copies(), 0.1f);
}

// Eight of 90 heads copy, as in SmolLM2.
ProceduralOptions wanted_of_small_model() {
  ProceduralOptions wanted;
  wanted.heads.kv_heads = 3;
  wanted.heads.needs.resize(90);
  for (std::size_t head = 0; head < 8; ++head) wanted.heads.needs[11 * head].induction = 1.0f;
  return wanted;
}

KvSpec shape_of_small_model() {
  KvSpec shape;
  for (int layer = 0; layer < 30; ++layer)
    shape.layers.push_back({3, 64, std::nullopt, std::vector<double>(32, 0.01)});
  return shape;
}

// More rows of copying heads, all of them seen from within the trained length, would cost what they bring. A window is no
// longer than what they see the past from.
TEST(Ladder, BeyondTheTrainedLengthBudgetsBuyWindowsAndRowsOfBlocks) {
  constexpr Pos kShort = 8192, kExpected = 100'000, kMost = 12'288;
  const KvSpec shape = shape_of_small_model();
  ProceduralOptions wanted = wanted_of_small_model();
  for (HeadNeed& need : wanted.heads.needs) need.induction = std::max(need.induction, 0.01f);
  wanted.budget_for = kExpected;
  std::int64_t window = 0;
  for (const std::int64_t budget : {48 * kMiB, 64 * kMiB, 96 * kMiB, 128 * kMiB, 192 * kMiB, 384 * kMiB}) {
    wanted.budget = budget;
    const ProceduralOptions o = filled_in(shape, {9, 0.125f, kShort}, wanted);
    EXPECT_LE(o.full_rows, kMost) << enough_for(budget);
    EXPECT_GT(o.window + o.full_rows + o.block, kMost) << enough_for(budget);
    EXPECT_EQ(o.full_from, wanted.full_from) << enough_for(budget);
    EXPECT_GE(o.window, window) << enough_for(budget);
    window = o.window;
    KvSpec spec = shape;
    spec.procedural = procedural_spec(shape, {9, 0.125f, kShort}, o);
    EXPECT_GE(planned_bytes(spec).total(), budget / 100 * 92) << enough_for(budget);
  }
  EXPECT_EQ(window, kShort / 8 * 5);
}

TEST(Ladder, ALargerBudgetTakesThreeSeventhsOfTheirTextFromCopyingHeadsAtMost) {
  const KvSpec shape = shape_of_small_model();
  ProceduralOptions wanted = wanted_of_small_model();
  for (const Pos expected : {Pos{4096}, Pos{8192}, kTrained}) {
    wanted.budget_for = expected;
    Pos most = 0;
    for (wanted.budget = 8 * kMiB; wanted.budget <= 64 * kMiB; wanted.budget += wanted.budget / 32) {
      const ProceduralOptions o = filled_in(shape, {9, 0.125f, kTrained}, wanted);
      const Pos now = std::min(expected, o.window + o.full_rows);
      EXPECT_GE(7 * now, 4 * most) << enough_for(wanted.budget) << " for " << expected;
      most = std::max(most, now);
    }
    EXPECT_EQ(most, expected);
  }
}

// Four bits hold more rows, but keys in four bits find less: docs/procedural_measurements.md.
TEST(Ladder, CopyingHeadsAreInEightBits_WhereTheseHoldTwoThirdsOfTheText) {
  constexpr Pos kExpected = 4096;
  ProceduralOptions wanted = wanted_of_small_model();
  wanted.budget_for = kExpected;
  std::set<RowType> found;
  for (wanted.budget = 8 * kMiB; wanted.budget <= 32 * kMiB; wanted.budget += kMiB) {
    const ProceduralOptions o = filled_in(shape_of_small_model(), {9, 0.125f, kTrained}, wanted);
    found.insert(o.full_type);
    if (o.full_type == RowType::q8_0) {
      EXPECT_GE(3 * o.full_rows, 2 * (kExpected - o.window)) << enough_for(wanted.budget);
    }
  }
  EXPECT_EQ(found, (std::set{RowType::q4_0, RowType::q8_0}));
}

TEST_P(LadderTest, ABudgetThatHoldsTheCacheOfTheTextIsThatCache) {
  for (const Pos expected : {Pos{3000}, Pos{4096}, Pos{20'000}, kTrained}) {
    // One token more, and what is rewritten at once should the text be longer. Where all heads copy, or the text ends
    // where stages must, the references and the first block that is sealed must fit, too.
    const std::int64_t cache = cache_of(DType::f16, expected + 1),
                       budget = cache +
                                (GetParam() < 16 && expected < kTrained ? 300 << 10 : cache / 16 + (1 << 20));
    const ProceduralOptions o = picked(budget, expected);
    EXPECT_TRUE(holds_exactly(o, expected)) << expected;
    EXPECT_LE(bytes_of(o), budget);
    EXPECT_FALSE(holds_exactly(picked(cache - cache / 50, expected), expected)) << expected;
  }
}

TEST_P(LadderTest, ABudgetThatHoldsTheTextInEightBitsKeepsEveryRow) {
  for (const Pos expected : {Pos{4096}, Pos{20'000}}) {
    // What comes after the text needs references and the summaries of a block.
    const std::int64_t cache = cache_of(DType::q8_0, expected), budget = cache + cache / 16 + (3 << 20);
    EXPECT_TRUE(holds_all(picked(budget, expected), expected)) << expected;
    EXPECT_TRUE(holds_all(picked(budget, expected, RowType::q8_0), expected)) << expected;
  }
}

TEST_P(LadderTest, RowsOfBlocksAreInFourBits_UnlessTheTextIsLongerThanTheTrainedLength) {
  const auto type = [&](std::int64_t budget, Pos expected) { return picked(budget, expected).row_type; };
  EXPECT_EQ(type(24 * kMiB, 20'000), RowType::q4_0);
  EXPECT_EQ(type(24 * kMiB, kTrained), RowType::q4_0);
  EXPECT_EQ(type(24 * kMiB, 0), RowType::q4_0);
  EXPECT_EQ(type(24 * kMiB, kTrained + 1), RowType::q8_0);
  ProceduralOptions given;
  EXPECT_EQ(filled_in(shape_, attention_, given).row_type, RowType::q8_0) << "there is no budget";
  given.budget = 24 * kMiB;
  given.budget_for = 20'000;
  given.row_type = RowType::f16;
  EXPECT_EQ(filled_in(shape_, attention_, given).row_type, RowType::f16);
  given.row_type = RowType::automatic;
  for (LayerSpec& layer : shape_.layers) layer.head_dim = 48;
  EXPECT_EQ(filled_in(shape_, attention_, given).row_type, RowType::f16) << "48 is no multiple of 32";
}

TEST_P(LadderTest, MoreRowsThanSmallBlocksHaveLeaveTheLargeOnes) {
  for (const std::int64_t rows : {40, 100}) {
    ProceduralOptions given;
    given.budget = 24 * kMiB;
    given.budget_for = 20'000;
    given.rows = rows;
    const ProceduralOptions filled = filled_in(shape_, attention_, given);
    EXPECT_EQ(filled.rows, rows);
    EXPECT_GE(filled.block, rows);
  }
}

TEST_P(LadderTest, WhatWasAskedForStays) {
  ProceduralOptions o;
  o.budget = 256 * kMiB;
  o.budget_for = 3000;
  o.window = 256;
  o.rows = 48;
  o.levels = 2;
  const ProceduralOptions filled = filled_in(shape_, attention_, o);
  EXPECT_EQ(filled.window, 256);
  EXPECT_EQ(filled.rows, 48);
  EXPECT_EQ(filled.levels, 2);
  EXPECT_GT(filled.full_from, 0.0f);

  // Blocks grow where all of their rows stay, but not beyond the window.
  o = {};
  o.budget = 256 * kMiB;
  o.budget_for = 3000;
  o.window = 64;
  EXPECT_EQ(filled_in(shape_, attention_, o).window, 64);
}

INSTANTIATE_TEST_SUITE_P(CopyingHeads, LadderTest, ::testing::Values(0, 3, 16));

}  // namespace
}  // namespace kvtide
