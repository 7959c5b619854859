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

TEST(StateProperty, EverySequenceOfStepsLeavesWhatTheContractSays) {
  std::int64_t steps = 0;
  int failures = 0;
  for (std::uint64_t seed = 0; seed < kSequences && failures < 3; ++seed) {
    Sequence sequence = testing::made_up_sequence(seed);
    steps += static_cast<std::int64_t>(sequence.steps.size());
    if (testing::run_sequence(sequence).empty()) continue;
    ++failures;
    sequence.steps = testing::shrink<SequenceStep>(sequence.steps, [&](const auto& fewer) {
      return !testing::run_sequence({sequence.spec, fewer}).empty();
    });
    ADD_FAILURE() << "seed " << seed << ": " << testing::run_sequence(sequence);
  }
  if (failures == 0) {
    EXPECT_GE(steps, 20000) << "sequences became too short to tell anything";
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
