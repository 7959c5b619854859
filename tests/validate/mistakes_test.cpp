#include "validate/mistakes.h"

#include <gtest/gtest.h>

#include "validate/runs.h"

namespace kvtide {
namespace {

TEST(Mistakes, ATokenThatNoCallReadsIsACallOfItsOwn) {
  const Schedule schedule = calls_of(4, 12);
  ASSERT_EQ(schedule.tokens(), 11);
  int asked = 0;
  for (const Mistake& mistake : mistakes_of_masks(schedule)) {
    if (mistake.cause == "not_causal") {
      EXPECT_TRUE(mistake.twist.visible(8, 9, false)) << mistake.what;
      EXPECT_FALSE(mistake.twist.visible(10, 11, false)) << mistake.what;
      EXPECT_FALSE(mistake.twist.visible(11, 12, false)) << mistake.what;
      ++asked;
    }
    if (mistake.what == "every token of a call of 1 sees its own row and no other") {
      EXPECT_FALSE(mistake.twist.visible(11, 10, true));
      EXPECT_TRUE(mistake.twist.visible(10, 9, true));
      ++asked;
    }
  }
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace kvtide
