#include "kvtide/heads.h"

#include <gtest/gtest.h>

#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

MeasureHeads of(int threads, std::function<bool(double)> progress = {}) {
  MeasureHeads o;
  o.threads = threads;
  o.prose = 1300;
  o.progress = std::move(progress);
  return o;
}

TEST(HeadTable, OfAModelWithWords_HasALineForEveryHead_AndIsTheSameAgain) {
  testing::SampleModel sample;
  sample.words = 150;
  const testing::TemporaryFile file = testing::sample_file(sample);
  const Model model(file.path());
  const MeasureHeads options = of(2);
  const HeadTable table = measure_heads(model, options);
  EXPECT_EQ(table.kv_heads, 2);
  ASSERT_EQ(table.needs.size(), 4u);
  float telling = 0.0f;
  for (const HeadNeed& need : table.needs) {
    EXPECT_GE(need.induction, 0.0f);
    EXPECT_LE(need.induction, 1.0f);  // a share of attention
    EXPECT_GT(need.output_norm, 0.0f);
    telling += need.share;
  }
  // Per block the 24 x 4 most telling rows, and the one at which the line is drawn.
  EXPECT_NEAR(telling, 24 * 4 + 1, 0.5);
  const HeadTable again = measure_heads(model, of(1));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(again.needs[i].induction, table.needs[i].induction);
    EXPECT_EQ(again.needs[i].share, table.needs[i].share);
    EXPECT_EQ(again.needs[i].output_norm, table.needs[i].output_norm);
  }
}

TEST(HeadTable, Refuses_AVocabularyWithoutWords_AndStopsWhenAsked) {
  const testing::TemporaryFile file = testing::sample_file();
  const Model model(file.path());
  testing::expect_refused(ErrorCode::unsupported, "too few plain words",
                          [&] { measure_heads(model, of(2)); });
  testing::expect_refused(ErrorCode::cancelled, "not finished",
                          [&] { measure_heads(model, of(2, [](double) { return false; })); });
}

}  // namespace
}  // namespace kvtide
