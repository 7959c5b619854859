// Made-up sequences of appends, transitions, forks and snapshots: a KV state does what the contract says,
// whatever came before. Failing sequences are made short before they are shown.
#include <gtest/gtest.h>

#include "tests/property/shrink.h"
#include "tests/property/state_sequence.h"

namespace kvtide {
namespace {

using testing::Sequence;
using testing::SequenceStep;

constexpr std::uint64_t kSequences = 1500;

// "" or the shortest sequence found that breaks the contract as well, with what is wrong.
std::string failure_of(Sequence sequence, std::int64_t* made) {
  if (testing::run_sequence(sequence, made).empty()) return "";
  sequence.steps = testing::shrink<SequenceStep>(sequence.steps, [&](const auto& fewer) {
    return !testing::run_sequence({sequence.spec, fewer}).empty();
  });
  return testing::run_sequence(sequence);
}

TEST(StateProperty, EverySequenceOfStepsLeavesWhatTheContractSays) {
  std::int64_t made = 0;
  int failures = 0;
  for (std::uint64_t seed = 0; seed < kSequences && failures < 3; ++seed) {
    const std::string wrong = failure_of(testing::made_up_sequence(seed), &made);
    if (wrong.empty()) continue;
    ++failures;
    ADD_FAILURE() << "seed " << seed << ": " << wrong;
  }
  if (failures == 0) {
    EXPECT_GE(made, 15000) << "sequences became too short to tell anything";
  }
}

// Every sequence is saved and loaded on its way and at its end, and goes on with other text; the rows that a
// query is given afterwards are compared bit for bit, with their distances and in their order.
TEST(StateProperty, AfterAThousandTransitionsARestoredStateGoesOnTheSame_ForEveryPolicyAndPairOfTypes) {
  const DType types[] = {DType::f32, DType::f16, DType::q8_0};
  for (const testing::Keeping keeping : testing::kKeepings)
    for (const DType keys : types)
      for (const DType values : types) {
        std::int64_t made = 0;
        for (std::uint64_t seed = 0; made < 1000; ++seed) {
          const std::string wrong = failure_of(testing::made_up_sequence(seed, keeping, keys, values), &made);
          ASSERT_EQ(wrong, "") << "policy " << static_cast<int>(keeping) << ", seed " << seed;
          ASSERT_LT(seed, 1000u) << "sequences became too short to tell anything";
        }
      }
}

TEST(Shrink, LeavesExactlyTheStepsThatFailTogether) {
  std::vector<int> steps(100);
  for (int i = 0; i < 100; ++i) steps[static_cast<std::size_t>(i)] = i;
  const auto fails = [](const std::vector<int>& s) {
    const auto has = [&](int x) { return std::find(s.begin(), s.end(), x) != s.end(); };
    return has(3) && has(50) && has(98);
  };
  EXPECT_EQ(testing::shrink<int>(steps, fails), (std::vector<int>{3, 50, 98}));
  int runs = 0;
  testing::shrink<int>(
      steps, [&](const auto&) { return ++runs > 1000; }, 10);
  EXPECT_EQ(runs, 10) << "no more tries than allowed";
}

}  // namespace
}  // namespace kvtide
