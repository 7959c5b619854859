#include "kernels/attend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/same_bits.h"

namespace kvtide {
namespace {

using testing::AttendCase;
using testing::AttendOptions;
using testing::full_spans;
using testing::make_case;
using testing::run_attend;

// Scores here stay below about 10, so their f32 rounding moves a weight by at most 1e-5 of itself; the values
// are of order one.
constexpr double kTolerance = 1e-5;

void expect_near_direct(const AttendCase& c, const testing::SpanLists& spans, const std::string& what) {
  const auto wanted = testing::direct_attention(c);
  for (const Kernels* kernels : available_kernels()) {
    const auto got = run_attend(c, kernels->attend, 2, spans);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], wanted[i], kTolerance) << what << " " << kernels->isa << " element " << i;
  }
}

TEST(Attend, EqualsTheSoftmaxInDouble_ForEveryHeadDimensionAndGroup) {
  for (const int head_dim : {1, 8, 16, 20, 64, 80, 256})
    for (const int group : {1, 2, 3, 4, 9}) {
      const AttendOptions o{
          .first = 90, .tokens = 5, .heads = group * 2, .kv_heads = 2, .head_dim = head_dim};
      const AttendCase c = make_case(o);
      expect_near_direct(c, full_spans(c),
                         "dim " + std::to_string(head_dim) + " group " + std::to_string(group));
    }
}

TEST(Attend, EqualsTheSoftmaxInDouble_ForTheWidestHeadAndTheLargestGroup) {
  const AttendCase c =
      make_case({.first = 70, .tokens = 3, .heads = 32, .kv_heads = 1, .head_dim = kMaxHeadDim});
  expect_near_direct(c, full_spans(c), "widest");
}

TEST(Attend, EqualsTheSoftmaxInDouble_ForEveryMixOfKeyAndValueTypes) {
  for (const DType keys : {DType::f16, DType::f32})
    for (const DType values : {DType::f16, DType::f32})
      for (const int head_dim : {20, 64}) {
        AttendOptions o{.first = 130, .tokens = 40, .heads = 6, .kv_heads = 2, .head_dim = head_dim};
        o.key_type = keys;
        o.value_type = values;
        const AttendCase c = make_case(o);
        expect_near_direct(c, full_spans(c), "types");
      }
}

TEST(Attend, SeesOnlyTheWindow_WhereverItBegins) {
  for (const std::int64_t window : {1, 2, 17, 63, 64, 65, 100, 128, 1000})
    for (const Pos first : {0, 1, 62, 63, 64, 150}) {
      const AttendCase c = make_case({.first = first, .tokens = 70, .window = window});
      expect_near_direct(c, full_spans(c),
                         "window " + std::to_string(window) + " first " + std::to_string(first));
    }
}

TEST(Attend, IgnoresWhatTheWindowHides_WhateverItHolds) {
  const std::int64_t window = 50;
  AttendCase c = make_case({.first = 400, .tokens = 30, .window = window});
  const auto before = run_attend(c, best_kernels().attend, 1, full_spans(c));
  for (auto& head : c.heads) {
    for (std::size_t i = 0; i < (400 - window + 1) * 16; ++i) {
      head.keys.numbers[i] = 1e30f;
      head.values.numbers[i] = -1e30f;
    }
    head.keys.store_all();
    head.values.store_all();
  }
  EXPECT_TRUE(testing::same_bits(run_attend(c, best_kernels().attend, 1, full_spans(c)), before));
}

TEST(Attend, WeighsRowsWithoutPositionByTheirMass_AndShowsThemToEveryQuery) {
  for (const std::int64_t compact : {1, 5, 63, 64, 65, 200, 1100})
    for (const auto window : {std::optional<std::int64_t>{}, std::optional<std::int64_t>{20}}) {
      const AttendCase c = make_case(
          {.first = 100, .tokens = 9, .heads = 4, .kv_heads = 2, .window = window, .compact = compact});
      expect_near_direct(c, full_spans(c), "compact " + std::to_string(compact));
    }
}

TEST(Attend, AddsTheMassOfASpanToThatOfItsRows) {
  constexpr float kMass = -1.25f;
  for (const bool of_rows : {true, false})
    for (const bool bf16 : {false, true}) {
      AttendCase c = make_case({.first = 40, .tokens = 5, .heads = 4, .kv_heads = 2, .compact = 150});
      c.shape.bf16 = bf16;
      auto one = full_spans(c), each = one;
      std::vector<std::vector<float>> masses;
      for (std::size_t h = 0; h < c.heads.size(); ++h) {
        masses.push_back(of_rows ? c.heads[h].log_mass : std::vector<float>(150, 0.0f));
        for (float& mass : masses.back()) mass += kMass;
        if (!of_rows) one[h][0].log_mass = nullptr;
        one[h][0].mass = kMass;
        each[h][0].log_mass = masses.back().data();
      }
      for (const Kernels* kernels : available_kernels())
        EXPECT_EQ(run_attend(c, kernels->attend, 1, one), run_attend(c, kernels->attend, 1, each))
            << kernels->isa << (of_rows ? " on top of their own" : " alone") << (bf16 ? ", bf16" : "");
    }
}

TEST(Attend, CountsARowOfMassLogThreeLikeThreeEqualRows) {
  AttendCase summary = make_case({.first = 10, .compact = 1});
  AttendCase copies = make_case({.first = 10, .compact = 3});
  summary.heads[0].log_mass = {static_cast<float>(std::log(3.0))};
  copies.heads[0].log_mass = {0.0f, 0.0f, 0.0f};
  for (auto* pair : {&copies.heads[0].compact_keys, &copies.heads[0].compact_values})
    for (std::size_t i = 0; i < 48; ++i) {
      const auto& source = pair == &copies.heads[0].compact_keys ? summary.heads[0].compact_keys
                                                                 : summary.heads[0].compact_values;
      pair->numbers[i] = source.numbers[i % 16];
    }
  copies.heads[0].compact_keys.store_all();
  copies.heads[0].compact_values.store_all();
  for (const Kernels* kernels : available_kernels()) {
    const auto one = run_attend(summary, kernels->attend, 1, full_spans(summary));
    const auto three = run_attend(copies, kernels->attend, 1, full_spans(copies));
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], three[i], 2e-6) << kernels->isa;
  }
}

TEST(Attend, StaysWithinToleranceWhereSpansAreCutInsideATile) {
  const AttendCase c = make_case({.first = 200, .tokens = 20, .heads = 4, .kv_heads = 2});
  expect_near_direct(c, full_spans(c, 0, {1, 2, 30, 64, 100, 199, 205}), "cut anywhere");
}

// Keys are multiples of unit vectors and queries small integers, so that scores are exact in f32.
TEST(Attend, KeepsItsAccuracyForScoresOfTenThousand) {
  for (const float extreme : {1e4f, -1e4f}) {
    AttendCase c = make_case({.first = 299, .tokens = 1, .heads = 1, .kv_heads = 1});
    c.shape.scale = 1.0f;
    std::fill(c.q.begin(), c.q.end(), 0.0f);
    c.q[0] = 1.0f;
    auto& keys = c.heads[0].keys;
    std::fill(keys.numbers.begin(), keys.numbers.end(), 0.0f);
    // Every row at the extreme, apart from small steps of an eighth that f32 holds exactly beside 1e4.
    for (std::size_t row = 0; row < 300; ++row)
      keys.numbers[row * 16] = extreme + 0.125f * static_cast<float>((row * 37) % 41);
    keys.store_all();
    expect_near_direct(c, full_spans(c), "all extreme");
    // One row towers over all others: the answer is its value.
    for (std::size_t row = 0; row < 300; ++row) keys.numbers[row * 16] = -1e4f;
    keys.numbers[123 * 16] = 1e4f;
    keys.store_all();
    for (const Kernels* kernels : available_kernels()) {
      const auto out = run_attend(c, kernels->attend, 1, full_spans(c));
      for (std::size_t d = 0; d < 16; ++d)
        EXPECT_EQ(out[d], c.heads[0].values.numbers[123 * 16 + d]) << kernels->isa;
    }
  }
}

// Rounding to bf16 moves a number by at most 2^-9 of itself: scores of size 10 by 2 x 10 / 512 at the very
// most, in the mean by far less; weights and values likewise.
TEST(Attend, WithBf16ComesNearTheSoftmaxInDouble_AndNearestWhereNothingIsRounded) {
  for (const int head_dim : {1, 20, 32, 64, 80, 256, kMaxHeadDim})
    for (const int group : {1, 2, 3, 5, 9})
      for (const DType type : {DType::f32, DType::f16, DType::q8_0}) {
        if (type == DType::q8_0 && head_dim % 32 != 0) continue;
        AttendOptions o{.first = 90, .tokens = 15, .heads = group * 2, .kv_heads = 2, .head_dim = head_dim};
        o.compact = 37;
        o.key_type = o.value_type = type;
        o.bf16 = true;
        const AttendCase c = make_case(o);
        const auto wanted = testing::direct_attention(c);
        double squares = 0.0;
        for (const Kernels* kernels : available_kernels()) {
          const auto got = run_attend(c, kernels->attend, 2, full_spans(c));
          for (std::size_t i = 0; i < got.size(); ++i) {
            ASSERT_NEAR(got[i], wanted[i], 0.05) << kernels->isa << " dim " << head_dim << " element " << i;
            squares += (got[i] - wanted[i]) * (got[i] - wanted[i]) / static_cast<double>(got.size());
          }
        }
        EXPECT_LT(std::sqrt(squares / static_cast<double>(available_kernels().size())), 0.006)
            << "dim " << head_dim << " group " << group;
      }
}

TEST(Attend, WithBf16OfOneRowGivesItsRoundedValue) {
  AttendOptions o{.head_dim = 64};
  o.bf16 = true;
  AttendCase c = make_case(o);
  c.heads[0].values.numbers[0] = 1.0f + 0x1p-8f;    // half way: to the even neighbour below
  c.heads[0].values.numbers[1] = 1.0f + 0x1.8p-7f;  // half way: to the even neighbour above
  c.heads[0].values.numbers[2] = -3.0f;
  c.heads[0].values.numbers[3] = 0x1p-70f;
  c.heads[0].values.store_all();
  for (const Kernels* kernels : available_kernels()) {
    const auto out = run_attend(c, kernels->attend, 1, full_spans(c));
    EXPECT_EQ(out[0], 1.0f) << kernels->isa;
    EXPECT_EQ(out[1], 1.0f + 0x1p-6f) << kernels->isa;
    EXPECT_EQ(out[2], -3.0f) << kernels->isa;
    EXPECT_EQ(out[3], 0.0f) << kernels->isa;
  }
}

TEST(Attend, OfOneRowGivesItsValue) {
  for (const int head_dim : {8, 64, 80}) {
    const AttendCase c = make_case({.head_dim = head_dim});
    for (const Kernels* kernels : available_kernels()) {
      const auto out = run_attend(c, kernels->attend, 1, full_spans(c));
      for (std::size_t i = 0; i < out.size(); ++i)
        EXPECT_EQ(out[i], c.heads[0].values.numbers[i % static_cast<std::size_t>(head_dim)]) << kernels->isa;
    }
  }
}

TEST(Attend, LetsANanInAVisibleKeyOrValueOrQueryReachTheOutput) {
  for (const Pos row : {0, 40, 63, 64, 1500}) {
    for (const int which : {0, 1, 2, 3}) {
      const bool in_key = which % 2 == 1;
      AttendOptions o{.first = 1500, .heads = 4, .kv_heads = 2};
      o.bf16 = which >= 2;
      AttendCase c = make_case(o);
      auto& rows = in_key ? c.heads[1].keys : c.heads[1].values;
      rows.numbers[static_cast<std::size_t>(row) * 16 + 5] = std::nanf("");
      rows.store_all();
      for (const Kernels* kernels : available_kernels()) {
        const auto out = run_attend(c, kernels->attend, 2, full_spans(c));
        for (std::size_t h = 0; h < 4; ++h)
          for (std::size_t d = 0; d < 16; ++d) {
            const bool broken = h >= 2 && (in_key || d == 5);
            EXPECT_EQ(std::isnan(out[h * 16 + d]), broken) << kernels->isa << " row " << row << " in key "
                                                           << in_key << " head " << h << " element " << d;
          }
      }
    }
  }
  AttendCase c = make_case({.first = 100});
  c.q[3] = std::nanf("");
  for (const Kernels* kernels : available_kernels())
    EXPECT_TRUE(std::isnan(run_attend(c, kernels->attend, 1, full_spans(c))[0])) << kernels->isa;
}

TEST(Attend, LetsAnInfiniteScoreReachTheOutputAsNan) {
  for (const auto& [broken, bf16] :
       {std::pair{INFINITY, false}, {3e38f, false}, {INFINITY, true}, {3e38f, true}}) {
    AttendOptions o{.first = 80, .heads = 1};
    o.bf16 = bf16;
    AttendCase c = make_case(o);
    for (std::size_t d = 0; d < 16; ++d) c.q[d] = 2.0f;
    for (std::size_t d = 0; d < 16; ++d) c.heads[0].keys.numbers[70 * 16 + d] = broken;
    c.heads[0].keys.store_all();
    for (const Kernels* kernels : available_kernels())
      EXPECT_TRUE(std::isnan(run_attend(c, kernels->attend, 1, full_spans(c))[0]))
          << kernels->isa << " " << broken;
  }
}

}  // namespace
}  // namespace kvtide
