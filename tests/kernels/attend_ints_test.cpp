// Attention over q8_0 rows in whole numbers: how near it comes, what its extremes are, and what may not reach
// it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/attend.h"
#include "kernels/kernels.h"
#include "tensor/blocks.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/same_bits.h"

namespace kvtide {
namespace {

using testing::AttendCase;
using testing::AttendOptions;
using testing::full_spans;
using testing::make_case;
using testing::run_attend;
using testing::same_bits;

AttendOptions eight_bits(AttendOptions o) {
  o.key_type = o.value_type = DType::q8_0;
  o.bf16 = true;
  return o;
}

// Rounding a query to 16 bits moves its elements by at most 2^-16 of the largest, about 4, and so a score by
// 2^-16 x 4 x 1.5 x sqrt(dim) / sqrt(dim), 1e-4, in the mean; weights move as much of the tile's largest.
// bf16 would move all of them by 2^-9: its test allows fifty times as much.
TEST(AttendInts, ComeWithinAThousandthOfTheSoftmaxInDouble_ForEveryHeadDimensionAndGroup) {
  for (const int head_dim : {32, 64, 96, 128, 256, 480, kMaxHeadDim})
    for (const int group : {1, 2, 3, 4, 5, 6, 7, 8}) {
      if (head_dim > 128 && group % 3 != 1) continue;
      const AttendCase c = make_case(eight_bits({.first = 90,
                                                 .tokens = 15,
                                                 .heads = group * 2,
                                                 .kv_heads = 2,
                                                 .head_dim = head_dim,
                                                 .compact = 37}));
      const auto wanted = testing::direct_attention(c);
      for (const Kernels* kernels : available_kernels()) {
        const auto got = run_attend(c, kernels->attend, 2, full_spans(c));
        double squares = 0.0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double error = static_cast<double>(got[i]) - wanted[i];
          ASSERT_LT(std::abs(error), 1e-3) << kernels->isa << " dim " << head_dim << " element " << i;
          squares += error * error / static_cast<double>(got.size());
        }
        EXPECT_LT(std::sqrt(squares), 1e-4) << kernels->isa << " dim " << head_dim << " group " << group;
      }
    }
}

TEST(AttendInts, MeetKeysAndValuesOfOtherTypes_WithTheSameBitsOnEveryTable) {
  for (const auto& [keys, values] :
       {std::pair{DType::q8_0, DType::f16}, {DType::f32, DType::q8_0}, {DType::q4_0, DType::q8_0}}) {
    AttendOptions o{.first = 200, .tokens = 21, .heads = 6, .kv_heads = 2, .head_dim = 96, .window = 77};
    o.bf16 = true;
    o.key_type = keys;
    o.value_type = values;
    const AttendCase c = make_case(o);
    const auto direct = testing::direct_attention(c);
    const auto wanted = run_attend(c, kAttendScalar, 1, full_spans(c));
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(wanted[i], direct[i], 0.05) << i;
    for (const Kernels* kernels : available_kernels())
      EXPECT_TRUE(same_bits(run_attend(c, kernels->attend, 2, full_spans(c)), wanted)) << kernels->isa;
  }
}

// One head, one query of zeros: what rows weigh is their mass alone.
AttendCase weighed(std::vector<float> masses, int head_dim = 32) {
  AttendCase c = make_case(
      eight_bits({.heads = 1, .head_dim = head_dim, .compact = static_cast<std::int64_t>(masses.size())}));
  std::fill(c.q.begin(), c.q.end(), 0.0f);
  c.heads[0].log_mass = std::move(masses);
  return c;
}

BlockQ8_0& block_of(testing::Rows& rows, std::int64_t row, int block) {
  return reinterpret_cast<BlockQ8_0*>(rows.stored.data() + row * rows.stride())[block];
}

TEST(AttendInts, HoldTheSumsOfTheLargestNumbersThereAre) {
  constexpr float kStep = 0.0625f;
  AttendCase c = make_case(eight_bits({.heads = 1, .head_dim = kMaxHeadDim, .compact = 64}));
  std::fill(c.q.begin(), c.q.end(), 2.0f);
  c.heads[0].log_mass.assign(64, 0.0f);
  for (auto* rows : {&c.heads[0].compact_keys, &c.heads[0].compact_values})
    for (std::int64_t row = 0; row < 64; ++row)
      for (int block = 0; block < kMaxHeadDim / 32; ++block) {
        block_of(*rows, row, block).d = f32_to_f16(kStep);
        std::fill_n(block_of(*rows, row, block).qs, 32, std::int8_t{-128});
      }
  const double score = 2.0 * kStep * -128.0 * kMaxHeadDim / std::sqrt(kMaxHeadDim);
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> out(c.q.size()), mass(1);
    ThreadPool pool(1);
    const ViewPoint plain;
    const float* q = c.q.data();
    attend(pool, kernels->attend, {c.shape, {&plain, 1}, {&q, 1}, testing::compact_spans(c)}, out.data(),
           mass.data());
    EXPECT_NEAR(mass[0], score + std::log(64.0), 1e-4 * std::abs(score)) << kernels->isa;
    for (const float value : out) EXPECT_NEAR(value, -128.0f * kStep, 1e-5f) << kernels->isa;
  }
}

// 63 rows weigh just under half a multiple of the smallest weight beside one of weight one: all of them are
// lost from the sum of the values, but not from the sum of the weights. Nothing can be worse.
TEST(AttendInts, LoseLessThanAThousandthOfTheLargestWeight_WhereAllRowsAreRoundedTheSameWay) {
  std::vector<float> masses(64, static_cast<float>(std::log(0.49 / 32767.0)));
  masses[17] = 0.0f;
  AttendCase c = weighed(masses);
  for (std::int64_t row = 0; row < 64; ++row) {
    block_of(c.heads[0].compact_values, row, 0).d = f32_to_f16(1.0f);
    std::fill_n(block_of(c.heads[0].compact_values, row, 0).qs, 32, std::int8_t{100});
  }
  for (const Kernels* kernels : available_kernels())
    for (const float value : run_attend(c, kernels->attend, 1, testing::compact_spans(c))) {
      EXPECT_LT(value, 100.0f) << kernels->isa;
      EXPECT_GT(value, 100.0f * (1.0f - 0x1p-10f)) << kernels->isa;
    }
}

TEST(AttendInts, WeighABlockByItsOwnStep_HoweverSmallOrUneven) {
  for (const float small : {0.0f, 0x1p-24f, 0x1p-14f}) {
    AttendCase c = weighed({0.0f, -1.0f, -40.0f}, 64);
    auto& values = c.heads[0].compact_values;
    for (std::int64_t row = 0; row < 3; ++row)
      for (int block = 0; block < 2; ++block) {
        block_of(values, row, block).d = f32_to_f16(block == 0 ? small : 2.0f);
        std::fill_n(block_of(values, row, block).qs, 32, static_cast<std::int8_t>(row == 0 ? 3 : -5));
      }
    const double second = std::exp(-1.0), third = std::exp(-40.0);
    const double mean = (3.0 - 5.0 * (second + third)) / (1.0 + second + third);
    for (const Kernels* kernels : available_kernels()) {
      const auto out = run_attend(c, kernels->attend, 1, testing::compact_spans(c));
      for (std::size_t d = 0; d < 64; ++d) {
        const double wanted = mean * (d < 32 ? static_cast<double>(small) : 2.0);
        EXPECT_NEAR(out[d], wanted, 1e-4 * wanted) << kernels->isa << " " << small << " " << d;
      }
    }
  }
}

TEST(AttendInts, CountAQueryOfNumbersTooSmallAsZeros) {
  AttendCase c = make_case(eight_bits({.first = 70, .heads = 1, .head_dim = 32}));
  std::fill(c.q.begin(), c.q.end(), 0.0f);
  const auto wanted = run_attend(c, kAttendScalar, 1, full_spans(c));
  for (const float tiny : {0x1p-61f, 0x1p-140f}) {
    for (std::size_t d = 0; d < 32; ++d) c.q[d] = d % 2 == 0 ? tiny : -tiny;
    for (const Kernels* kernels : available_kernels())
      EXPECT_TRUE(same_bits(run_attend(c, kernels->attend, 1, full_spans(c)), wanted)) << kernels->isa;
  }
}

TEST(AttendInts, KeepWhatTheWindowHidesOut_EvenWhenItIsNotANumber) {
  const AttendOptions o =
      eight_bits({.first = 400, .tokens = 30, .heads = 3, .kv_heads = 1, .head_dim = 64, .window = 50});
  const AttendCase clean = make_case(o);
  for (const float bad : {NAN, INFINITY, -65504.0f}) {
    AttendCase c = clean;
    for (auto* rows : {&c.heads[0].keys, &c.heads[0].values})
      for (std::int64_t row = 0; row < 400 - 50 + 1; ++row)
        for (int block = 0; block < 2; ++block) block_of(*rows, row, block).d = f32_to_f16(bad);
    for (const Kernels* kernels : available_kernels())
      EXPECT_TRUE(same_bits(run_attend(c, kernels->attend, 1, full_spans(c)),
                            run_attend(clean, kernels->attend, 1, full_spans(clean))))
          << kernels->isa << " " << bad;
  }
}

TEST(AttendInts, LetWhatIsNotANumberReachTheOutput_OfItsHeadOrItsBlock) {
  for (const float bad : {NAN, INFINITY})
    for (const Pos row : {0, 63, 64, 130})
      for (const bool in_key : {false, true}) {
        AttendCase c = make_case(eight_bits({.first = 130, .heads = 4, .kv_heads = 2, .head_dim = 96}));
        block_of(in_key ? c.heads[1].keys : c.heads[1].values, row, 1).d = f32_to_f16(bad);
        // An infinite score of minus infinity would hide the row.
        if (in_key)
          for (std::size_t i = 0; i < 32; ++i)
            for (std::size_t h = 2; h < 4; ++h) {
              c.q[h * 96 + 32 + i] = 1.0f;
              block_of(c.heads[1].keys, row, 1).qs[i] = 1;
            }
        for (const Kernels* kernels : available_kernels()) {
          const auto out = run_attend(c, kernels->attend, 2, full_spans(c));
          for (std::size_t h = 0; h < 4; ++h)
            for (std::size_t d = 0; d < 96; ++d)
              EXPECT_EQ(!std::isfinite(out[h * 96 + d]), h >= 2 && (in_key || d / 32 == 1))
                  << kernels->isa << " " << bad << " row " << row << " in key " << in_key << " head " << h
                  << " element " << d;
        }
      }
  for (const float bad : {NAN, INFINITY}) {
    AttendCase c = make_case(eight_bits({.first = 100, .heads = 1, .head_dim = 64}));
    c.q[3] = bad;
    for (const Kernels* kernels : available_kernels())
      for (const float value : run_attend(c, kernels->attend, 1, full_spans(c)))
        EXPECT_TRUE(std::isnan(value)) << kernels->isa;
  }
}

}  // namespace
}  // namespace kvtide
