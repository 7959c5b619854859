// The work of the tokenizer grows as the text does, whatever the text holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/text.h"
#include "tests/base/work_meter.h"
#include "tests/text/golden_vocabulary.h"
#include "tests/text/hostile_units.h"

namespace kvtide {
namespace {

Work work_of(const Tokenizer& tokenizer, const std::string& text) {
  const Work before = work_done();
  tokenizer.encode(text);
  const Work after = work_done();
  return {after.blocks - before.blocks, after.bytes - before.bytes};
}

class LinearWork : public testing::TestWithParam<const char*> {};

TEST_P(LinearWork, TwiceTheTextIsAtMost2Point2TimesTheWork) {
  const Tokenizer tokenizer = read_golden_vocabulary(GetParam()).build();
  for (const char* unit : kHostileUnits) {
    const std::string once = repeated(unit, 40'000 / std::string_view(unit).size());
    const Work single = work_of(tokenizer, once), twice = work_of(tokenizer, once + once);
    EXPECT_LE(static_cast<double>(twice.blocks), 2.2 * static_cast<double>(single.blocks)) << quoted(unit);
    EXPECT_LE(static_cast<double>(twice.bytes), 2.2 * static_cast<double>(single.bytes)) << quoted(unit);
  }
}

TEST_P(LinearWork, AByteOfTextIsABoundedNumberOfSteps) {
  const Tokenizer tokenizer = read_golden_vocabulary(GetParam()).build();
  for (const char* unit : kHostileUnits) {
    const std::string text = repeated(unit, 80'000 / std::string_view(unit).size());
    const Work work = work_of(tokenizer, text);
    EXPECT_GT(work.blocks, text.size() / 100) << "nothing was counted: " << quoted(unit);
    EXPECT_LE(work.blocks / text.size(), 200u) << quoted(unit);
    EXPECT_LE(work.bytes / text.size(), 64u) << quoted(unit);
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, LinearWork, testing::ValuesIn(kHostileVocabularies), vocabulary_name);

}  // namespace
}  // namespace kvtide
