#include "text/rank_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace kvtide {
namespace {

// Against a sorted set, with pushes between pops: below, at and above the rank whose turn it is.
TEST(RankQueue, GivesTheLowestRankFirst_AndTheLeftmostOfEquals) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    RankQueue queue;
    std::multiset<std::pair<std::uint32_t, std::uint32_t>> expected;
    const unsigned ranks = 1 + seed * 3;
    const auto push = [&] {
      const auto rank = static_cast<std::uint32_t>(random() % ranks);
      const auto position = static_cast<std::uint32_t>(random() % 1000);
      queue.push({rank, position});
      expected.insert({rank, position});
    };
    for (int i = 0; i < 300; ++i) push();
    for (int i = 0; i < 1000; ++i) {
      if (random() % 3 == 0 || expected.empty()) {
        push();
        continue;
      }
      const RankQueue::Entry entry = queue.pop();
      EXPECT_EQ(std::pair(entry.rank, entry.position), *expected.begin())
          << "seed " << seed << ", step " << i;
      expected.erase(expected.begin());
    }
    EXPECT_EQ(queue.empty(), expected.empty());
  }
}

}  // namespace
}  // namespace kvtide
