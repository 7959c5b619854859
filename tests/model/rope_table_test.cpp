#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace kvtide {
namespace {

RopeConfig plain(double base) {
  RopeConfig config;
  config.base = base;
  return config;
}

RopeConfig scaled(RopeScaling scaling, double factor, double original_context = 0.0) {
  RopeConfig config;
  config.scaling = scaling;
  config.factor = factor;
  config.original_context = original_context;
  return config;
}

struct Angles {
  std::vector<float> cosine, sine;
};

Angles angles(const RopeConfig& config, int dims, Pos first, std::int64_t count) {
  const RopeTable table(config, dims);
  EXPECT_EQ(table.pairs(), dims / 2);
  Angles out{std::vector<float>(static_cast<std::size_t>(count * dims / 2)),
             std::vector<float>(static_cast<std::size_t>(count * dims / 2))};
  table.fill(first, count, out.cosine.data(), out.sine.data());
  return out;
}

// cos and sin of an angle given in turns, so that nothing is lost to the size of the angle.
void expect_turns(const Angles& got, std::size_t at, long double radians, double magnitude,
                  const std::string& what) {
  const long double rest = std::fmod(radians, 2.0L * std::numbers::pi_v<long double>);
  ASSERT_NEAR(got.cosine[at], magnitude * static_cast<double>(std::cos(rest)), 2e-7) << what;
  ASSERT_NEAR(got.sine[at], magnitude * static_cast<double>(std::sin(rest)), 2e-7) << what;
}

TEST(RopeTable, TurnsPairIByBaseToTheMinusTwoIOverDimensions) {
  for (const double base : {10000.0, 1e6, 100000.0})
    for (const int dims : {2, 8, 64, 256}) {
      const auto got = angles(plain(base), dims, 0, 300);
      for (int p = 0; p < 300; ++p)
        for (int i = 0; i < dims / 2; ++i)
          expect_turns(got, static_cast<std::size_t>(p * dims / 2 + i),
                       p * std::pow(static_cast<long double>(base), -2.0L * i / dims), 1.0,
                       "base " + std::to_string(base) + " position " + std::to_string(p));
    }
}

TEST(RopeTable, KeepsItsAccuracyFarFromTheStart) {
  for (const Pos first : {Pos{100000}, Pos{1000000}, Pos{20000000}}) {
    const auto got = angles(plain(10000.0), 64, first, 3);
    for (std::size_t p = 0; p < 3; ++p)
      for (std::size_t i = 0; i < 32; ++i)
        expect_turns(got, p * 32 + i,
                     static_cast<long double>(first + static_cast<Pos>(p)) *
                         std::pow(10000.0L, -2.0L * static_cast<long double>(i) / 64.0L),
                     1.0, "position " + std::to_string(first));
  }
}

TEST(RopeTable, DoesNotDependOnWhereAChunkBegins) {
  const auto all = angles(plain(10000.0), 32, 0, 100), part = angles(plain(10000.0), 32, 60, 40);
  for (std::size_t i = 0; i < part.cosine.size(); ++i) {
    ASSERT_EQ(part.cosine[i], all.cosine[60 * 16 + i]);
    ASSERT_EQ(part.sine[i], all.sine[60 * 16 + i]);
  }
}

TEST(RopeTable, WithLinearScalingReadsPositionsCloserTogether) {
  const RopeConfig config = scaled(RopeScaling::linear, 8.0);
  const auto got = angles(config, 16, 0, 200);
  for (int p = 0; p < 200; ++p)
    for (int i = 0; i < 8; ++i)
      expect_turns(got, static_cast<std::size_t>(p * 8 + i), p / 8.0L * std::pow(10000.0L, -2.0L * i / 16.0L),
                   1.0, std::to_string(p));
}

TEST(RopeTable, DividesFrequenciesByTheDivisorsOfTheFile) {
  RopeConfig config = plain(500.0);
  config.divisors = {1.0f, 2.5f, 8.0f, 0.5f};
  const auto got = angles(config, 8, 0, 50);
  for (int p = 0; p < 50; ++p)
    for (int i = 0; i < 4; ++i)
      expect_turns(got, static_cast<std::size_t>(p * 4 + i),
                   p * std::pow(500.0L, -2.0L * i / 8.0L) /
                       static_cast<long double>(config.divisors[static_cast<std::size_t>(i)]),
                   1.0, std::to_string(p));
}

TEST(RopeTable, WithYarnKeepsFastPairs_StretchesSlowOnes_AndRaisesTheMagnitude) {
  const double context = 4096.0, factor = 4.0;
  const RopeConfig config = scaled(RopeScaling::yarn, factor, context);
  const int dims = 128;
  const auto got = angles(config, dims, 1, 1);
  const double magnitude = 0.1 * std::log(factor) + 1.0;
  int kept = 0, stretched = 0;
  double last = 1.0;
  for (int i = 0; i < dims / 2; ++i) {
    const double frequency = std::pow(10000.0, -2.0 * i / dims);
    const double turns = context * frequency / (2.0 * std::numbers::pi);
    const auto at = static_cast<std::size_t>(i);
    const double angle =
        std::atan2(static_cast<double>(got.sine[at]), static_cast<double>(got.cosine[at]));  // at position 1
    ASSERT_NEAR(std::hypot(static_cast<double>(got.cosine[at]), static_cast<double>(got.sine[at])), magnitude,
                1e-6);
    const double share = angle / frequency;  // 1: kept, 1 / factor: stretched
    // The ramp runs over whole pairs: one pair of slack at either end.
    const double pair_ratio = std::pow(10000.0, 2.0 / dims);
    if (turns > 32.0 * pair_ratio) {
      ASSERT_NEAR(share, 1.0, 1e-5) << "pair " << i;
      ++kept;
    } else if (turns < 1.0 / pair_ratio) {
      ASSERT_NEAR(share, 1.0 / factor, 1e-3) << "pair " << i;
      ++stretched;
    }
    ASSERT_LE(share, last + 1e-3) << "pair " << i << ": the ramp only falls";
    last = share;
  }
  EXPECT_GT(kept, 10);
  EXPECT_GT(stretched, 10);
}

TEST(RopeTable, WithAFactorOfOneYarnChangesNothing) {
  const RopeConfig yarn = scaled(RopeScaling::yarn, 1.0, 2048.0);
  const auto got = angles(yarn, 64, 0, 100), wanted = angles(plain(10000.0), 64, 0, 100);
  for (std::size_t i = 0; i < got.cosine.size(); ++i) {
    ASSERT_NEAR(got.cosine[i], wanted.cosine[i], 1e-7);
    ASSERT_NEAR(got.sine[i], wanted.sine[i], 1e-7);
  }
}

}  // namespace
}  // namespace kvtide
